//! What a user wants done with files: an order, signed like that of a command.

use broker::{
    ids::{RequestId, SeatNumber, SiteId},
    time::Time,
    trust::Statement,
};
use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

use super::manifest::{ChunkHash, ManifestError, check_path};
use crate::order::RunNumber;

/// Most patterns of one order, and the longest.
pub const PATTERNS_MAX: usize = 64;
/// Longest pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 1024;

/// What is to become of files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FilesWish {
    /// The site keeps them for runs of the reservation that name this manifest.
    Keep {
        /// The hash of the manifest.
        manifest: ChunkHash,
    },
    /// They are put into the directory of a run of the seat.
    Put {
        /// The hash of the manifest.
        manifest: ChunkHash,
        /// The directory below that of the run; empty for that one itself.
        directory: String,
    },
    /// Those of a run of the seat with such names come back.
    Get {
        /// Names with `*`, `?`, `[...]` and `**`.
        patterns: Vec<String>,
        /// The run is forgotten once they have come.
        forgets: bool,
    },
}

/// What is to become of files, for one seat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesOrder {
    /// In this grid.
    pub grid: String,
    /// The site.
    pub site: SiteId,
    /// The reservation.
    pub request: RequestId,
    /// The seat.
    pub seat: SeatNumber,
    /// Of which run of the seat; the last one when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunNumber>,
    /// What is wanted.
    pub wish: FilesWish,
    /// When it was signed, on the user's clock.
    pub issued: Time,
    /// From this second on it is worth nothing.
    pub expires: Time,
    /// Random, so that no two are the same.
    pub nonce: String,
}

impl Statement for FilesOrder {
    const KIND: &'static str = "files";
    const TEXT_BYTES_MAX: usize = 512 * 1024;
}

/// Why an order about files is not looked at further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilesOrderError {
    /// The directory.
    #[error("the directory: {0}")]
    Directory(#[from] ManifestError),
    /// There are too many patterns, or none.
    #[error("{0} patterns, 1 to {PATTERNS_MAX} are taken")]
    Patterns(usize),
    /// It is no pattern.
    #[error("{0:?} is no pattern: {1}")]
    Pattern(String, String),
}

impl FilesOrder {
    /// Whether any site could do it.
    ///
    /// # Errors
    /// [`FilesOrderError`].
    pub fn check(&self) -> Result<(), FilesOrderError> {
        match &self.wish {
            FilesWish::Keep { .. } => Ok(()),
            FilesWish::Put { directory, .. } if directory.is_empty() => Ok(()),
            FilesWish::Put { directory, .. } => Ok(check_path(directory)?),
            FilesWish::Get { patterns, .. } => globs(patterns).map(drop),
        }
    }
}

/// Names of files that are wanted.
#[derive(Debug, Clone)]
pub struct Patterns(GlobSet);

impl Patterns {
    /// Those with these patterns; that of a directory is also that of what is below it.
    ///
    /// # Errors
    /// [`FilesOrderError`].
    pub fn of(patterns: &[String]) -> Result<Patterns, FilesOrderError> {
        let mut set = GlobSetBuilder::new();
        for glob in globs(patterns)? {
            set.add(glob);
        }
        let too_large = |error: globset::Error| FilesOrderError::Pattern(patterns.join(" "), error.kind().to_string());
        Ok(Patterns(set.build().map_err(too_large)?))
    }

    /// Whether a file with this name is wanted; in a time that grows with the lengths of both, whatever they are.
    pub fn match_path(&self, path: &str) -> bool {
        self.0.is_match(path)
    }
}

/// What the patterns say, not yet put together for matching.
fn globs(patterns: &[String]) -> Result<Vec<Glob>, FilesOrderError> {
    if patterns.is_empty() || patterns.len() > PATTERNS_MAX {
        return Err(FilesOrderError::Patterns(patterns.len()));
    }
    let mut globs = Vec::with_capacity(2 * patterns.len());
    for text in patterns {
        let wrong = |why: &str| FilesOrderError::Pattern(text.chars().take(100).collect(), why.to_owned());
        if text.len() > PATTERN_BYTES_MAX {
            return Err(wrong("it is too long"));
        }
        let plain = text.trim_end_matches('/');
        let plain = if plain == "." { "" } else { plain.trim_start_matches("./") };
        let below = if plain.is_empty() { "**".to_owned() } else { format!("{plain}/**") };
        for text in [plain, &below] {
            let glob = GlobBuilder::new(&without_braces(text)).literal_separator(true).backslash_escape(false).build();
            globs.push(glob.map_err(|error| wrong(&error.kind().to_string()))?);
        }
    }
    Ok(globs)
}

/// The pattern with braces that mean themselves, as they do in names.
fn without_braces(pattern: &str) -> String {
    let (mut written, mut class, mut before) = (String::with_capacity(pattern.len()), None, ' ');
    for letter in pattern.chars() {
        class = match (class, letter) {
            (None, '[') => Some(0),
            (None, _) => None,
            // The first letter of a class, also behind one `!`, is one of it.
            (Some(0), '!' | '^') if before == '[' => Some(0),
            (Some(1..), ']') => None,
            (Some(count), _) => Some(count + 1),
        };
        match letter {
            '{' | '}' if class.is_none() => written.extend(['[', letter, ']']),
            _ => written.push(letter),
        }
        before = letter;
    }
    written
}

#[cfg(test)]
pub(crate) mod tests {
    use broker::trust::{SignedText, testing};
    use expect_test::expect;

    use super::*;

    /// An order of this kind for seat 2.
    pub fn order(wish: FilesWish) -> FilesOrder {
        FilesOrder {
            grid: testing::GRID.to_owned(),
            site: SiteId::new("s").unwrap(),
            request: RequestId::new("r").unwrap(),
            seat: SeatNumber(2),
            run: None,
            wish,
            issued: Time(1000),
            expires: Time(1060),
            nonce: "n".to_owned(),
        }
    }

    #[test]
    fn the_text_is_the_one_that_other_versions_read() {
        let get = FilesWish::Get { patterns: vec!["a/*".to_owned()], forgets: true };
        let put = FilesWish::Put { manifest: ChunkHash::of(b""), directory: "d".to_owned() };
        let orders = [FilesOrder { run: Some(RunNumber(7)), ..order(get) }, order(put)];
        let signed = orders.map(|order| SignedText::sign(&order, &testing::key(1)).unwrap());
        let texts = signed.each_ref().map(|signed| signed.text.replace(testing::GRID, "GRID"));
        expect![[r#"
            kolo-files/1
            {"grid":"GRID","site":"s","request":"r","seat":2,"run":7,"wish":{"get":{"patterns":["a/*"],"forgets":true}},"issued":1000,"expires":1060,"nonce":"n"}
            kolo-files/1
            {"grid":"GRID","site":"s","request":"r","seat":2,"wish":{"put":{"manifest":"af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262","directory":"d"}},"issued":1000,"expires":1060,"nonce":"n"}
        "#]]
        .assert_eq(&texts.map(|text| text + "\n").concat());
        let read: FilesOrder = signed[0].open().unwrap();
        assert!(read.check().is_ok());
    }

    #[test]
    fn patterns_name_files_and_what_is_below_directories() {
        let matches = |pattern: &str, path: &str| Patterns::of(&[pattern.to_owned()]).unwrap().match_path(path);
        for (pattern, path) in [
            ("a", "a"),
            ("a", "a/b/c"),
            ("a/", "a/b"),
            ("*.csv", "x.csv"),
            ("**/*.csv", "a/b/x.csv"),
            ("", "a/b"),
            ("a?[0-9]", "ab7"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [("a", "ab"), ("*.csv", "a/x.csv"), ("a/*", "b/a")] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
        for wish in [
            FilesWish::Get { patterns: Vec::new(), forgets: false },
            FilesWish::Get { patterns: vec!["a".to_owned(); PATTERNS_MAX + 1], forgets: false },
            FilesWish::Get { patterns: vec!["[a".to_owned()], forgets: false },
            FilesWish::Get { patterns: vec!["a".repeat(PATTERN_BYTES_MAX + 1)], forgets: false },
            FilesWish::Put { manifest: ChunkHash::of(b""), directory: "../a".to_owned() },
        ] {
            assert!(order(wish.clone()).check().is_err(), "{wish:?}");
        }
    }

    #[test]
    fn patterns_match_as_people_expect_and_in_a_time_that_nobody_can_draw_out() {
        let matches = |pattern: &str, path: &str| Patterns::of(&[pattern.to_owned()]).unwrap().match_path(path);
        assert!(matches("*.csv", "a.csv") && !matches("*.csv", "d/a.csv") && matches("**/*.csv", "d/a.csv"));
        assert!(matches("out/", "out/d/x") && matches("out", "out/x") && !matches("out", "outer"));
        assert!(matches("[ab]?", "bx") && !matches("[!ab]?", "bx") && matches("[!!]{", "a{"));
        assert!(matches(".", "d/x") && matches("./d", "d/x"), "all, as for other commands");
        // Nothing else means more than itself.
        for name in ["a{1,2}.txt", r"a\*", "a{", "}"] {
            assert!(matches(name, name), "{name}");
        }
        assert!(!matches("a{1,2}.txt", "a1.txt") && matches("[{]}[]}]", "{}]"));
        let began = std::time::Instant::now();
        assert!(!matches(&("*a".repeat(400) + "b"), &"a".repeat(250)));
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    }
}
