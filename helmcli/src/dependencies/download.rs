//! Fetching what is locked, one after the other, and putting it into `charts/` when all of it is there.
//!
//! Mirrors `downloadAll` and `findChartURL` (`pkg/downloader/manager.go`).

use std::collections::HashSet;

use chart::source::{Entry, Index};
use chart::{Dependency, Time};
use golib::semver::{Constraint, Version};
use golib::strconv::quote;
use url::Url;

use super::folder::{self, Folder, Staging, load_directory};
use super::network::Network;
use super::{pack, repository_names};
use crate::address;
use crate::console::print;
use crate::helm_home::HelmFlags;
use crate::repositories::{self, Repository};

/// Why a dependency cannot be had: some reasons helm tells twice.
enum Failure {
    Plain(String),
    Message(String),
}

/// Where a locked chart is.
struct Place<'a> {
    url: String,
    digest: String,
    /// Whose credentials and certificates are for it.
    repository: Option<&'a Repository>,
}

/// A repository and the index kept of it.
type Known<'a> = (&'a Repository, Index);

/// A download of everything that is locked.
pub(super) struct Download<'a> {
    folder: &'a Folder,
    helm: &'a HelmFlags,
    epoch: Option<Time>,
    network: &'a Network<'a>,
    known: Vec<Known<'a>>,
    staging: Staging,
    /// Addresses that are here already.
    seen: HashSet<String>,
}

impl<'a> Download<'a> {
    /// # Errors
    /// A repository was never updated, or the chart's directory cannot be written.
    pub(super) fn new(
        folder: &'a Folder,
        helm: &'a HelmFlags,
        epoch: Option<Time>,
        network: &'a Network<'a>,
        configured: &'a [Repository],
    ) -> Result<Self, String> {
        let known = configured
            .iter()
            .map(|one| Ok((one, repositories::cached_index(helm, &one.name)?)))
            .collect::<Result<_, String>>()?;
        folder.charts()?;
        Ok(Self {
            folder,
            helm,
            epoch,
            network,
            known,
            staging: Staging::new(folder)?,
            seen: HashSet::new(),
        })
    }

    /// Fetches all of `locked`, whose local charts get their versions here.
    ///
    /// # Errors
    /// One cannot be had; nothing has changed then.
    pub(super) fn run(mut self, locked: &mut [Dependency]) -> Result<(), String> {
        print(&format!("Saving {} charts", locked.len()));
        for dependency in locked.iter_mut() {
            self.one(dependency).map_err(|failure| match failure {
                Failure::Plain(message) => message,
                Failure::Message(message) => {
                    print(&format!("Save error occurred:  {message}"));
                    message
                }
            })?;
        }
        folder::replace(&self.staging, &self.folder.charts()?, locked)
    }

    fn one(&mut self, dependency: &mut Dependency) -> Result<(), Failure> {
        let Dependency {
            name, repository, ..
        } = &*dependency;
        if repository.is_empty() {
            return self.vendored(dependency);
        }
        if let Some(place) = repository.strip_prefix("file://") {
            if self.helm.is_debug() {
                print(&format!("Archiving {name} from repo {repository}"));
            }
            dependency.version = self.local(place, dependency).map_err(Failure::Message)?;
            return Ok(());
        }
        let place = self
            .place(dependency)
            .map_err(|cause| Failure::Message(format!("could not find : {cause}")))?;
        if self.seen.contains(&place.url) {
            print(&format!("Already downloaded {name} from repo {repository}"));
            return Ok(());
        }
        print(&format!("Downloading {name} from repo {repository}"));
        if repository_names::is_registry(&place.url) {
            return self.pull(&place.url);
        }
        self.archive(&place).map_err(|cause| {
            Failure::Message(format!("could not download {}: {cause}", place.url))
        })?;
        self.seen.insert(place.url);
        Ok(())
    }

    /// A chart that should lie in `charts/` as a directory.
    fn vendored(&self, dependency: &Dependency) -> Result<(), Failure> {
        let Dependency { name, version, .. } = dependency;
        print(&format!(
            "Dependency {name} did not declare a repository. Assuming it exists in the charts directory"
        ));
        let path = self
            .folder
            .find(&format!("charts/{name}"))
            .map_err(Failure::Plain)?;
        let chart = load_directory(&path).map_err(|cause| {
            Failure::Plain(format!(
                "unable to load chart '{}': {cause}",
                path.display()
            ))
        })?;
        let found = &chart.metadata.version;
        match fits(name, version, found).map_err(Failure::Plain)? {
            true => Ok(()),
            false => Err(Failure::Message(format!(
                "dependency {name} at version {found} does not satisfy the constraint {version}"
            ))),
        }
    }

    /// Packs a chart that lies elsewhere on this machine; gives its version.
    fn local(&self, place: &str, dependency: &Dependency) -> Result<String, String> {
        let mut chart = load_directory(&self.folder.find(place)?)?;
        let version = chart.metadata.version.clone();
        let Dependency {
            name,
            version: expected,
            ..
        } = dependency;
        if !fits(name, expected, &version)? {
            return Err(format!("can't get a valid version for dependency {name}"));
        }
        if let Some(time) = self.epoch {
            pack::stamp(&mut chart, time);
        }
        let archive = pack::pack(&chart, pack::now())?;
        self.staging.keep(&pack::file_name(&chart), &archive)?;
        Ok(version)
    }

    fn place(&self, dependency: &Dependency) -> Result<Place<'_>, String> {
        let Dependency {
            name,
            version,
            repository,
            ..
        } = dependency;
        if repository_names::is_registry(repository) {
            return Ok(Place {
                url: format!("{repository}/{name}:{version}"),
                digest: String::new(),
                repository: None,
            });
        }
        let known = self
            .known
            .iter()
            .find(|(known, _)| address::equal(repository, &known.url));
        let Some((known, index)) = known else {
            return self
                .unmanaged(dependency)
                .map_err(|cause| format!("chart {name} not found in {repository}: {cause}"));
        };
        let entries = index.entries.get(name).ok_or("entry not found")?;
        let entry = exact(entries, version).ok_or("no matching version")?;
        let (url, digest) = located(repository, entry).ok_or("no matching version")?;
        Ok(Place {
            url: url?,
            digest,
            repository: Some(known),
        })
    }

    /// Helm asks again a repository that nobody configured.
    fn unmanaged(&self, dependency: &Dependency) -> Result<Place<'_>, String> {
        let Dependency {
            name,
            version,
            repository,
            ..
        } = dependency;
        let (url, digest) = self.network.find(repository, name, version)?;
        Ok(Place {
            url,
            digest,
            repository: None,
        })
    }

    fn pull(&self, url: &str) -> Result<(), Failure> {
        let (reference, version) = split_tag(url).ok_or_else(|| {
            Failure::Plain(format!(
                "could not parse OCI reference: improperly formatted oci chart reference: {url}"
            ))
        })?;
        let pulled = self.network.pull(reference, version).and_then(|chart| {
            let name = reference.rsplit('/').next().unwrap_or_default();
            let file = format!("{name}-{}.tgz", chart.version);
            match file.contains(['/', '\0']) {
                true => Err(format!("{} is no name of a file", quote(&file))),
                false => self.staging.keep(&file, &chart.bytes),
            }
        });
        pulled.map_err(|cause| Failure::Message(format!("could not download {reference}: {cause}")))
    }

    fn archive(&self, place: &Place<'_>) -> Result<(), String> {
        let Place { url, digest, .. } = place;
        let invalid = || format!("invalid chart URL format: {url}");
        let name = Url::parse(url)
            .ok()
            .and_then(|url| address::file_name(&url));
        let name = name.ok_or_else(invalid)?;
        let anonymous = Repository {
            url: url.clone(),
            ..Repository::default()
        };
        let owner = self
            .known
            .iter()
            .find(|(_, index)| repositories::lists(index, url))
            .map(|(known, _)| *known);
        let repository = place.repository.or(owner).unwrap_or(&anonymous);
        let chart = self.network.archive(repository, url, digest)?;
        self.staging.keep(&name, &chart.bytes)
    }
}

/// Whether the version of a chart on this machine satisfies what is wanted.
fn fits(name: &str, expected: &str, found: &str) -> Result<bool, String> {
    let constraint = Constraint::parse(expected).map_err(|error| {
        format!("dependency {name} has an invalid version/constraint format: {error}")
    })?;
    let version = Version::parse(found)
        .map_err(|error| format!("invalid version {expected} for dependency {name}: {error}"))?;
    Ok(constraint.check(&version))
}

/// The entry of a version; the first one that has an address where none is given.
fn exact<'e>(entries: &'e [Entry], version: &str) -> Option<&'e Entry> {
    let expected = Version::parse(version);
    let equals = |entry: &Entry| match &expected {
        Err(_) => version.is_empty() || entry.version == version,
        Ok(expected) => Version::parse(&entry.version).is_ok_and(|found| found == *expected),
    };
    entries
        .iter()
        .find(|entry| entry.first_url().is_some() && equals(entry))
}

/// Address and digest of an entry, seen from its repository.
fn located(repository: &str, entry: &Entry) -> Option<(Result<String, String>, String)> {
    let first = entry.first_url()?;
    Some((address::resolve(repository, first), entry.digest.clone()))
}

/// Splits the tag off a reference whose host may have a port.
fn split_tag(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("oci://")?;
    let mut colons = rest.match_indices(':').map(|(at, _)| at);
    let first = colons.next()?;
    let is_port = |text: &str| {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        (1..=5).contains(&digits) && text[digits..].starts_with('/')
    };
    let at = match is_port(&rest[first + 1..]) {
        true => colons.next()?,
        false => first,
    };
    let (reference, tag) = url.split_at("oci://".len() + at);
    Some((reference, &tag[1..]))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("oci://h/c/web:1.0.0", Some(("oci://h/c/web", "1.0.0")))]
    #[case("oci://h:5000/c/web:1.0.0", Some(("oci://h:5000/c/web", "1.0.0")))]
    #[case("oci://h:5000/c/web", None)]
    #[case("oci://h/web:^1:2", Some(("oci://h/web", "^1:2")))]
    #[case("http://h/web:1", None)]
    fn tags(#[case] url: &str, #[case] want: Option<(&str, &str)>) {
        assert_eq!(split_tag(url), want);
    }

    #[test]
    fn versions_are_compared_as_such() {
        let entry = |version: &str, urls: &[&str]| Entry {
            version: version.into(),
            urls: Some(urls.iter().map(|url| (*url).to_owned()).collect()),
            ..Entry::default()
        };
        let entries = [
            entry("v1.2.0", &[]),
            entry("1.2", &["a"]),
            entry("odd", &["b"]),
        ];
        let found = |version| exact(&entries, version).map(|entry| entry.version.as_str());
        assert_eq!(found("1.2.0"), Some("1.2"));
        assert_eq!(found(""), Some("1.2"));
        assert_eq!(found("odd"), Some("odd"));
        assert_eq!(found("2.0.0"), None);
    }
}
