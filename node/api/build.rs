//! Tells the description of the API how the core's types are written as JSON: the core itself knows nothing of HTTP.

fn main() {
    let types = [
        ("SiteId", "String"),
        ("HostId", "String"),
        ("RequestId", "String"),
        ("ResourceName", "String"),
        ("PublicKey", "String"),
        ("Role", "String"),
        ("Time", "i64"),
        ("Subject", "serde_json::Value"),
        ("Attributes", "std::collections::BTreeMap<String, String>"),
        ("LedgerVersion", "crate::schema::Version"),
    ];
    let config =
        types.into_iter().fold(utoipa_config::Config::new(), |config, (name, schema)| config.alias_for(name, schema));
    config.write_to_file();
}
