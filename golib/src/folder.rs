//! Where the path of a URL leads. Not Go's: servers differ in how often they decode a path before they route it, whether a backslash is a slash,
//! and whether what follows a `;` counts. Who compares an address with a folder asks for all of these readings.

/// Rounds of decoding that are told apart, from none but in the segments themselves to this many; beyond them only whether it is decoded to the end.
const ROUNDS: usize = 3;

/// A longer path, in bytes, is not read: no server is asked for one, and all its readings would take a thousand times as much.
const LONGEST: usize = 8 << 10;

/// A path in each way that servers read it: read once, compared with any number of folders.
///
/// ```
/// use golib::folder::Readings;
///
/// let is_below = |path: &str| Readings::of(path).are_below("stable");
/// assert!(is_below("/stable/web/index.yaml") && is_below("/st%61ble"));
/// assert!(!is_below("/stable-not/index.yaml"));
/// // Some servers take the one for `/tenant/index.yaml`, others do not take the other for a segment.
/// assert!(!is_below("/stable/..%2ftenant/index.yaml") && !is_below("/stable%2fweb"));
/// ```
pub struct Readings(Option<Vec<(Reading, Vec<Vec<u8>>)>>);

impl Readings {
    /// The readings of a path. One of more than 8 KiB is below no folder for certain, and may be below any.
    pub fn of(path: &str) -> Self {
        let read = || readings().map(|reading| (reading, reading.segments(path)));
        Self((path.len() <= LONGEST).then(|| read().collect()))
    }

    /// Whether the path lies below a folder, or is it, in whichever way a server reads the two. Slashes at their ends do not count.
    pub fn are_below(&self, folder: &str) -> bool {
        self.0.as_ref().is_some_and(|readings| {
            let mut readings = readings.iter();
            readings.all(|(reading, path)| path.starts_with(&reading.segments(folder)))
        })
    }

    /// Whether some server takes the path for one below a folder, or for that folder.
    ///
    /// ```
    /// use golib::folder::Readings;
    ///
    /// assert!(Readings::of("/x/..%2fstable/index.yaml").may_be_below("stable"));
    /// assert!(!Readings::of("/other/index.yaml").may_be_below("stable"));
    /// ```
    pub fn may_be_below(&self, folder: &str) -> bool {
        self.0.as_ref().is_none_or(|readings| {
            let mut readings = readings.iter();
            readings.any(|(reading, path)| path.starts_with(&reading.segments(folder)))
        })
    }
}

/// All paths that servers may take one for, without slashes at their ends and each of them once; first the one that is decoded and resolved as usual.
///
/// ```
/// let paths = golib::folder::possible_paths("/x/..%2fstable/web");
/// assert_eq!(paths, ["stable/web", "x/../stable/web"]);
/// assert_eq!(golib::folder::possible_paths("/stable//web%201/"), ["stable/web 1"]);
/// ```
pub fn possible_paths(path: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let usual = Reading {
        rounds: 1,
        backslash: false,
        parameters: false,
    };
    for reading in std::iter::once(usual).chain(readings()) {
        let path = reading.segments(path).join(&b'/');
        let path = String::from_utf8_lossy(&path).into_owned();
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// One way to read a path.
#[derive(Clone, Copy)]
struct Reading {
    /// How often it is decoded before it is split; without any its segments are, one by one. More than [`ROUNDS`]: until nothing is left to decode.
    rounds: usize,
    /// A backslash is a slash.
    backslash: bool,
    /// What follows a `;` in a segment does not count: `..;x` leads upwards.
    parameters: bool,
}

fn readings() -> impl Iterator<Item = Reading> {
    let switches = [(false, false), (true, false), (false, true), (true, true)];
    (0..=ROUNDS + 1).flat_map(move |rounds| {
        switches.map(|(backslash, parameters)| Reading {
            rounds,
            backslash,
            parameters,
        })
    })
}

impl Reading {
    /// The names on the way, dots resolved.
    fn segments(self, path: &str) -> Vec<Vec<u8>> {
        let whole = match self.rounds {
            0 => path.as_bytes().to_vec(),
            rounds if rounds > ROUNDS => decoded_to_the_end(path.as_bytes()),
            rounds => (0..rounds).fold(path.as_bytes().to_vec(), |text, _| decoded(&text)),
        };
        let mut segments = Vec::new();
        for segment in whole.split(|&byte| byte == b'/' || self.backslash && byte == b'\\') {
            let name = match self.parameters {
                true => segment.split(|&byte| byte == b';').next(),
                false => None,
            };
            let name = name.unwrap_or(segment);
            let name = match self.rounds {
                0 => decoded(name),
                _ => name.to_vec(),
            };
            match name.as_slice() {
                b"" | b"." => {}
                b".." => drop(segments.pop()),
                _ => segments.push(name),
            }
        }
        segments
    }
}

/// Percent signs decoded once; what is none of hexadecimal digits stays.
fn decoded(mut text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    while let [first, rest @ ..] = text {
        match escaped(text) {
            Some(byte) => {
                decoded.push(byte);
                text = text.get(3..).unwrap_or_default();
            }
            None => {
                decoded.push(*first);
                text = rest;
            }
        }
    }
    decoded
}

/// Decoded as often as there is something to decode, in one pass: `%25252f` would otherwise take as many as it is long.
fn decoded_to_the_end(text: &[u8]) -> Vec<u8> {
    let mut decoded: Vec<u8> = Vec::with_capacity(text.len());
    for &byte in text {
        decoded.push(byte);
        while let Some(start) = decoded.len().checked_sub(3)
            && let Some(byte) = decoded.get(start..).and_then(escaped)
        {
            decoded.truncate(start);
            decoded.push(byte);
        }
    }
    decoded
}

/// The byte that a text begins with in percent-encoding.
fn escaped(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else {
        return None;
    };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_some_server_takes_for_a_way_out_is_not_below() {
        for path in [
            "/stable/../tenant",
            "/stable/%2e%2e/tenant",
            "/stable/..%2ftenant",
            "/stable/..%2F..%2Fstable/..%2ftenant",
            "/stable/..%5ctenant",
            "/stable/..\\tenant",
            "/stable/..;/tenant",
            "/stable/..;a=b%2fstable/tenant",
            "/stable/..%3b/tenant",
            "/stable/%252e%252e/tenant",
            "/stable/..%25252ftenant",
            "/stable/..%252525252525255ctenant",
            // Decoded once it leads away, to the end it leads back.
            "/stable/..%5ctenant/%252e%252e/stable",
            // A segment of its own for who does not decode slashes.
            "/tenant%2f..%2fstable/web",
            "/stable%2ftenant",
            "/STABLE/web",
            "/",
        ] {
            assert!(!Readings::of(path).are_below("stable"), "{path}");
        }
    }

    #[test]
    fn other_spellings_of_a_folder_are_below() {
        for (path, folder) in [
            ("/stable", "stable"),
            ("/stable/", "stable/"),
            ("//stable//web", "/stable"),
            ("/%73table/web", "stable"),
            ("/stable/a%2fb", "stable"),
            ("/stable/100%", "stable"),
            ("/projects/group%2Fweb/index.yaml", "projects/group%2Fweb"),
            ("/my%20charts/web", "my charts"),
            ("/stable/x/../web", "stable"),
            ("/web", ""),
        ] {
            assert!(Readings::of(path).are_below(folder), "{path}");
        }
        assert!(!Readings::of("/%ff/web").are_below("%fe"));
        assert!(!Readings::of("/projects/group%2Fweb").are_below("projects/group"));
    }

    #[test]
    fn a_path_that_is_too_long_to_be_read_may_be_anywhere() {
        let at = |length: usize| Readings::of(&format!("/stable/{}", "a".repeat(length - 8)));
        assert!(at(LONGEST).are_below("stable") && !at(LONGEST).may_be_below("other"));
        let long = at(LONGEST + 1);
        assert!(!long.are_below("stable") && long.may_be_below("other"));
    }

    #[test]
    fn paths_are_decoded_to_the_end_in_one_pass() {
        let end = |text: &str| String::from_utf8(decoded_to_the_end(text.as_bytes())).unwrap();
        assert_eq!(end("a%25252fb"), "a/b");
        assert_eq!(end("%%32f"), "/");
        assert_eq!(end("%2%zz%"), "%2%zz%");
        let deep = format!("%{}2f", "25".repeat(1 << 20));
        assert_eq!(end(&deep), "/");
    }
}
