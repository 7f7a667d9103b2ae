//! Requests written in JSDL 1.0 (GFD-R.136), as far as they say something that Kolo can promise.
//!
//! The hosts, their resources, the names of candidates and the wall time become a request; what describes the job itself (its
//! program, arguments, files) is passed over, since Kolo starts nothing. Invariant: an element that asks for anything else is
//! refused by name and line, never dropped.

use std::path::Path;

use broker::{
    amount::Amount,
    ids::{HostId, RequestId},
    resources::{Amounts, ResourceName},
};
use roxmltree::{Document, Node};

use crate::text::{
    document::{self, DocumentError},
    request_file::Draft,
};

const JSDL: &str = "http://schemas.ggf.org/jsdl/2005/11/jsdl";
const POSIX: &str = "http://schemas.ggf.org/jsdl/2005/11/jsdl-posix";
const HPC: &str = "http://schemas.ggf.org/jsdl/2006/07/jsdl-hpcpa";

/// What describes the job and not the hosts.
const OF_THE_JOB: [&str; 16] = [
    "ApplicationName",
    "ApplicationVersion",
    "Argument",
    "Description",
    "Environment",
    "Error",
    "Executable",
    "GroupName",
    "Input",
    "JobAnnotation",
    "JobProject",
    "Name",
    "Output",
    "ProcessName",
    "UserName",
    "WorkingDirectory",
];

/// Base units of Kolo in one unit of JSDL, as a fraction.
struct Scale {
    times: f64,
    by: f64,
}

const CORES: Scale = Scale { times: 1000.0, by: 1.0 };
const HERTZ: Scale = Scale { times: 1.0, by: 1e6 };
const BYTES: Scale = Scale { times: 1.0, by: 1_048_576.0 };

/// Elements of `Resources` that are quantities: whether of all hosts together, which resource, in which unit.
const QUANTITIES: [(&str, bool, &str, Scale); 7] = [
    ("IndividualCPUCount", false, "cpu", CORES),
    ("IndividualCPUSpeed", false, "mhz", HERTZ),
    ("IndividualPhysicalMemory", false, "memory", BYTES),
    ("IndividualDiskSpace", false, "disk", BYTES),
    ("TotalCPUCount", true, "cpu", CORES),
    ("TotalPhysicalMemory", true, "memory", BYTES),
    ("TotalDiskSpace", true, "disk", BYTES),
];

/// Reads the request in `file`.
///
/// # Errors
/// [`DocumentError`] with file, line and element.
pub fn read(file: &Path) -> Result<Draft, DocumentError> {
    parse(file, &document::read_text(file)?)
}

/// Reads the request in `text`, the content of `file`.
///
/// # Errors
/// As for [`read`].
pub fn parse(file: &Path, text: &str) -> Result<Draft, DocumentError> {
    let document = Document::parse(text).map_err(|error| DocumentError::Content {
        file: file.to_owned(),
        line: Some(error.pos().row as usize),
        key: String::new(),
        message: error.to_string(),
    })?;
    let reader = Reader { file };
    let mut draft = Draft::default();
    let root = document.root_element();
    if root.tag_name().name() != "JobDefinition" || root.tag_name().namespace() != Some(JSDL) {
        return Err(reader.wrong(root, format!("expected a JobDefinition of the namespace {JSDL}")));
    }
    for description in elements(root) {
        reader.expect(description, "JobDescription")?;
        for part in elements(description) {
            reader.part(part, &mut draft)?;
        }
    }
    Ok(draft)
}

fn elements<'a, 'b>(node: Node<'a, 'b>) -> impl Iterator<Item = Node<'a, 'b>> {
    node.children().filter(Node::is_element)
}

fn text_of<'a>(node: Node<'a, '_>) -> &'a str {
    node.text().unwrap_or_default().trim()
}

struct Reader<'a> {
    file: &'a Path,
}

impl Reader<'_> {
    fn wrong(&self, node: Node<'_, '_>, message: impl Into<String>) -> DocumentError {
        let line = node.document().text_pos_at(node.range().start).row;
        DocumentError::Content {
            file: self.file.to_owned(),
            line: Some(line as usize),
            key: node.tag_name().name().to_owned(),
            message: message.into(),
        }
    }

    fn unknown(&self, node: Node<'_, '_>) -> DocumentError {
        self.wrong(node, "Kolo has nothing that this element could ask for; take it out to go without")
    }

    fn expect(&self, node: Node<'_, '_>, name: &str) -> Result<(), DocumentError> {
        let is_it = node.tag_name().name() == name && node.tag_name().namespace() == Some(JSDL);
        if is_it { Ok(()) } else { Err(self.wrong(node, format!("expected {name}"))) }
    }

    fn is_of_the_job(node: Node<'_, '_>) -> bool {
        let is_known = matches!(node.tag_name().namespace(), Some(JSDL | POSIX | HPC));
        is_known && OF_THE_JOB.contains(&node.tag_name().name())
    }

    /// One part of the `JobDescription`.
    fn part(&self, part: Node<'_, '_>, draft: &mut Draft) -> Result<(), DocumentError> {
        let name = part.tag_name().name();
        let children = elements(part).filter(|child| !Self::is_of_the_job(*child));
        match name {
            _ if part.tag_name().namespace() != Some(JSDL) => Err(self.unknown(part)),
            "JobIdentification" => {
                for child in children {
                    self.expect(child, "JobName")?;
                    let label = RequestId::new(text_of(child)).map_err(|error| self.wrong(child, error.to_string()))?;
                    draft.id = Some(label);
                }
                Ok(())
            }
            "Application" => {
                for application in children {
                    self.application(application, draft)?;
                }
                Ok(())
            }
            "Resources" => {
                for resource in elements(part) {
                    self.resource(resource, draft)?;
                }
                Ok(())
            }
            _ => Err(self.unknown(part)),
        }
    }

    fn application(&self, application: Node<'_, '_>, draft: &mut Draft) -> Result<(), DocumentError> {
        let is_known = match application.tag_name().name() {
            "POSIXApplication" => application.tag_name().namespace() == Some(POSIX),
            "HPCProfileApplication" => application.tag_name().namespace() == Some(HPC),
            _ => false,
        };
        if !is_known {
            return Err(self.unknown(application));
        }
        for child in elements(application).filter(|child| !Self::is_of_the_job(*child)) {
            if child.tag_name().name() != "WallTimeLimit" {
                return Err(self.unknown(child));
            }
            let seconds = text_of(child).parse::<i64>();
            draft.duration = Some(seconds.map_err(|_| self.wrong(child, "expected a whole number of seconds"))?);
        }
        Ok(())
    }

    fn resource(&self, node: Node<'_, '_>, draft: &mut Draft) -> Result<(), DocumentError> {
        let name = node.tag_name().name();
        if node.tag_name().namespace() != Some(JSDL) {
            return Err(self.unknown(node));
        }
        if let Some((_, is_total, resource, scale)) = QUANTITIES.iter().find(|(known, ..)| *known == name) {
            let amounts = if *is_total { &mut draft.total } else { &mut draft.per_host };
            return self.quantity(node, resource, scale, amounts);
        }
        match name {
            "Description" => Ok(()),
            "TotalResourceCount" => {
                let count = self.least(node)?.ceil();
                if !(1.0..=f64::from(u32::MAX)).contains(&count) {
                    return Err(self.wrong(node, "expected a number of hosts, 1 or more"));
                }
                draft.hosts = Some(whole(count).try_into().unwrap_or(u32::MAX));
                Ok(())
            }
            "CandidateHosts" => {
                for host in elements(node) {
                    self.expect(host, "HostName")?;
                    let id = HostId::new(text_of(host)).map_err(|error| self.wrong(host, error.to_string()))?;
                    draft.candidates.get_or_insert_default().push(id);
                }
                Ok(())
            }
            "CPUArchitecture" => self.attribute(node, &["CPUArchitectureName"], "arch", draft),
            "OperatingSystem" => self.attribute(node, &["OperatingSystemType", "OperatingSystemName"], "os", draft),
            _ => Err(self.unknown(node)),
        }
    }

    /// An attribute that stands in a chain of elements, each the only one in the one above.
    fn attribute(&self, node: Node<'_, '_>, chain: &[&str], key: &str, draft: &mut Draft) -> Result<(), DocumentError> {
        let Some((name, below)) = chain.split_first() else {
            draft.attributes.insert(key.to_owned(), text_of(node).to_lowercase());
            return Ok(());
        };
        let inside: Vec<_> = elements(node).filter(|child| !Self::is_of_the_job(*child)).collect();
        let [only] = inside.as_slice() else { return Err(self.wrong(node, format!("expected one {name}"))) };
        if only.tag_name().name() == *name {
            self.attribute(*only, below, key, draft)
        } else {
            Err(self.unknown(*only))
        }
    }

    fn quantity(
        &self,
        node: Node<'_, '_>,
        resource: &str,
        scale: &Scale,
        amounts: &mut Amounts,
    ) -> Result<(), DocumentError> {
        // A part of a base unit asks for the whole one.
        let amount = (self.least(node)? * scale.times / scale.by).ceil();
        let name = ResourceName::new(resource).map_err(|error| self.wrong(node, error.to_string()))?;
        amounts.insert(name, Amount(whole(amount)));
        Ok(())
    }

    /// The least number inside the only range of `node`.
    fn least(&self, node: Node<'_, '_>) -> Result<f64, DocumentError> {
        let ranges: Vec<_> = elements(node).collect();
        let [range] = ranges.as_slice() else {
            return Err(self.wrong(node, "expected one Exact, LowerBoundedRange or Range"));
        };
        let bound = match range.tag_name().name() {
            "Exact" | "LowerBoundedRange" => *range,
            "Range" => elements(*range)
                .find(|child| child.tag_name().name() == "LowerBound")
                .ok_or_else(|| self.wrong(*range, "expected a LowerBound"))?,
            _ => return Err(self.unknown(*range)),
        };
        let number = text_of(bound).parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| self.wrong(bound, format!("{:?}: expected a number, 0 or more", text_of(bound))))
    }
}

/// A number that is whole and not negative; too large ones become the largest, which the request's own check refuses.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(inside: &str) -> String {
        format!(
            "<jsdl:JobDefinition xmlns:jsdl=\"{JSDL}\" xmlns:p=\"{POSIX}\" xmlns:x=\"urn:x\">\n\
             <jsdl:JobDescription>{inside}</jsdl:JobDescription></jsdl:JobDefinition>"
        )
    }

    fn read(inside: &str) -> Result<Draft, String> {
        parse(Path::new("j.xml"), &document(inside)).map_err(|error| error.to_string())
    }

    fn amount(amounts: &Amounts, name: &str) -> u64 {
        amounts[&ResourceName::new(name).unwrap()].0
    }

    #[test]
    fn hosts_totals_and_minima_are_read() {
        let draft = read(
            "<jsdl:JobIdentification><jsdl:JobName>render</jsdl:JobName><jsdl:Description>d</jsdl:Description>\
             </jsdl:JobIdentification><jsdl:Application><p:POSIXApplication><p:Executable>/bin/x</p:Executable>\
             <p:WallTimeLimit>7200</p:WallTimeLimit></p:POSIXApplication></jsdl:Application>\
             <jsdl:Resources><jsdl:TotalResourceCount><jsdl:Exact>5.0</jsdl:Exact></jsdl:TotalResourceCount>\
             <jsdl:TotalCPUCount><jsdl:LowerBoundedRange>12</jsdl:LowerBoundedRange></jsdl:TotalCPUCount>\
             <jsdl:IndividualPhysicalMemory><jsdl:Range><jsdl:LowerBound>1073741825</jsdl:LowerBound>\
             <jsdl:UpperBound>9e9</jsdl:UpperBound></jsdl:Range></jsdl:IndividualPhysicalMemory>\
             <jsdl:CPUArchitecture><jsdl:CPUArchitectureName>x86_64</jsdl:CPUArchitectureName></jsdl:CPUArchitecture>\
             <jsdl:OperatingSystem><jsdl:OperatingSystemType><jsdl:OperatingSystemName>LINUX\
             </jsdl:OperatingSystemName></jsdl:OperatingSystemType></jsdl:OperatingSystem>\
             <jsdl:CandidateHosts><jsdl:HostName>h1</jsdl:HostName><jsdl:HostName>h2</jsdl:HostName>\
             </jsdl:CandidateHosts></jsdl:Resources>",
        )
        .unwrap();
        assert_eq!((draft.hosts, draft.duration), (Some(5), Some(7200)));
        assert_eq!(draft.id.unwrap().as_str(), "render");
        assert_eq!(amount(&draft.total, "cpu"), 12_000);
        assert_eq!(amount(&draft.per_host, "memory"), 1025, "a byte more than a GiB asks for the next MiB");
        assert_eq!((&*draft.attributes["arch"], &*draft.attributes["os"]), ("x86_64", "linux"));
        assert_eq!(draft.candidates.unwrap().len(), 2);
    }

    #[test]
    fn what_does_not_map_is_named_with_its_line() {
        let resources = |inside: &str| format!("<jsdl:Resources>\n{inside}</jsdl:Resources>");
        for (inside, expected) in [
            ("<jsdl:DataStaging/>".to_owned(), "j.xml:2: DataStaging: Kolo has nothing"),
            (resources("<jsdl:ExclusiveExecution>true</jsdl:ExclusiveExecution>"), "j.xml:3: ExclusiveExecution"),
            (resources("<x:GPUs>1</x:GPUs>"), "GPUs"),
            (
                resources(
                    "<jsdl:TotalCPUCount><jsdl:UpperBoundedRange>2</jsdl:UpperBoundedRange></jsdl:TotalCPUCount>",
                ),
                "UpperBoundedRange",
            ),
            (resources("<jsdl:TotalCPUCount>12</jsdl:TotalCPUCount>"), "TotalCPUCount: expected one Exact"),
            (resources("<jsdl:TotalCPUCount><jsdl:Exact>-1</jsdl:Exact></jsdl:TotalCPUCount>"), "expected a number"),
            (
                resources("<jsdl:TotalResourceCount><jsdl:Exact>0</jsdl:Exact></jsdl:TotalResourceCount>"),
                "TotalResourceCount: expected a number of hosts",
            ),
            (
                "<jsdl:Application><p:POSIXApplication><p:CPUTimeLimit>1</p:CPUTimeLimit></p:POSIXApplication>\
                 </jsdl:Application>"
                    .to_owned(),
                "CPUTimeLimit",
            ),
        ] {
            let error = read(&inside).unwrap_err();
            assert!(error.contains(expected), "{inside}: {error}");
        }
        let error = parse(Path::new("j.xml"), "<a>\n<b></a>").unwrap_err().to_string();
        assert!(error.starts_with("j.xml:2: "), "{error}");
        let error = parse(Path::new("j.xml"), "<JobDefinition/>").unwrap_err().to_string();
        assert!(error.contains("namespace"), "{error}");
        // Entities, which could grow without bounds, are not read.
        let bomb = "<!DOCTYPE a [<!ENTITY b \"bbbb\">]><a>&b;</a>";
        assert!(parse(Path::new("j.xml"), bomb).is_err());
    }
}
