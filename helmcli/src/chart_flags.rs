//! Which chart: a path, an address, or a name in a repository, and how to reach it.
//!
//! Mirrors `addChartPathOptionsFlags` (`pkg/cmd/flags.go`) and `LocateChart` (`pkg/action/install.go`).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use chart::source::{Access, ChartRef, Credentials, SafeUrl};
use chart::{Chart, Warnings, loader};
use golib::strconv::quote;

use crate::access::{overridden, registry_access, tls_files};
use crate::client::{Client, Fetched};
use crate::fetch_errors::message;
use crate::helm_home::HelmFlags;
use crate::repositories;
use crate::verify;

/// Flags that tell where a chart comes from; names and meanings are helm's.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ChartFlags {
    /// Chart repository to take the chart from
    #[arg(long, default_value = "", hide_default_value = true)]
    pub repo: String,

    /// Version or constraint of the chart to take
    #[arg(long, default_value = "", hide_default_value = true)]
    pub version: String,

    /// Take development versions too: the same as --version '>0.0.0-0'
    #[arg(long)]
    pub devel: bool,

    /// User name for the repository or registry
    #[arg(long, default_value = "", hide_default_value = true)]
    pub username: String,

    /// Password for the repository or registry
    #[arg(long, default_value = "", hide_default_value = true)]
    pub password: String,

    /// Send user name and password to every host an index names
    #[arg(long)]
    pub pass_credentials: bool,

    /// Certificates to trust when fetching, in PEM
    #[arg(long, default_value = "", hide_default_value = true)]
    pub ca_file: String,

    /// Certificate to show when fetching, in PEM
    #[arg(long, default_value = "", hide_default_value = true)]
    pub cert_file: String,

    /// Key of that certificate, in PEM
    #[arg(long, default_value = "", hide_default_value = true)]
    pub key_file: String,

    /// Accept any certificate when fetching
    #[arg(long)]
    pub insecure_skip_tls_verify: bool,

    /// Fetch from the registry without TLS
    #[arg(long)]
    pub plain_http: bool,

    /// Take the chart only with a provenance file that a key of the keyring signed
    #[arg(long)]
    pub verify: bool,

    /// Public keys for --verify, as gpg --export writes them; ~/.gnupg/pubring.gpg without the flag
    #[arg(long, default_value = "", hide_default_value = true)]
    pub keyring: String,
}

/// A chart that was found: here, or fetched.
#[derive(Debug)]
pub enum Located {
    Path(PathBuf),
    Archive(bytes::Bytes),
}

impl Located {
    /// Reads it.
    ///
    /// # Errors
    /// It is no chart; the text is helm's.
    pub fn load(&self, warnings: &mut Warnings) -> Result<Chart, String> {
        let loaded = match self {
            Self::Path(path) => loader::load(path, warnings),
            Self::Archive(bytes) => loader::load_archive(&bytes[..], warnings),
        };
        loaded.map_err(|error| error.to_string())
    }
}

impl ChartFlags {
    /// Finds a chart, as helm looks for it, and fetches it where it is not here.
    ///
    /// # Errors
    /// It is not there, or cannot be had.
    pub fn locate(&self, reference: &str, helm: &HelmFlags) -> Result<Located, String> {
        let reference = reference.trim();
        if self.repo.is_empty() {
            let path = Path::new(reference);
            if path.exists() {
                let absolute = std::path::absolute(path).map_err(|error| error.to_string())?;
                let cleaned = golib::path::clean(absolute.as_os_str().as_encoded_bytes());
                let cleaned = PathBuf::from(OsString::from_vec(cleaned));
                return match self.verify {
                    // What was verified is what is rendered, whoever writes to the file meanwhile.
                    true => verify::file(&cleaned, &self.keyring).map(Located::Archive),
                    false => Ok(Located::Path(cleaned)),
                };
            }
            if path.is_absolute() || reference.starts_with('.') {
                return Err(format!("path {} not found", quote(reference)));
            }
        }
        let client = Client::new()?;
        let fetched = self.fetch(&client, reference, helm)?;
        if self.verify {
            verify::fetched(&client, &fetched, &self.keyring)?;
        }
        Ok(Located::Archive(fetched.archive.bytes))
    }

    fn version(&self) -> String {
        match (self.version.trim(), self.devel) {
            ("", true) => ">0.0.0-0".to_owned(),
            (version, _) => version.to_owned(),
        }
    }

    /// How the flags say to reach a server.
    ///
    /// # Errors
    /// A certificate file cannot be read.
    pub fn access(&self) -> Result<Access, String> {
        let (ca, identity) = tls_files(&self.ca_file, &self.cert_file, &self.key_file)
            .map_err(|cause| format!("missing registry client: {cause}"))?;
        Ok(Access {
            credentials: Credentials::new(&self.username, &self.password),
            ca,
            insecure: self.insecure_skip_tls_verify,
            plain_http: self.plain_http,
            identity,
            passes_credentials: self.pass_credentials,
            ..Access::default()
        })
    }

    /// The access for what the index of `--repo` names: its author must not choose who else is shown the login.
    fn access_to(&self, url: &str, access: Access) -> Access {
        let is_of_repo = match (SafeUrl::parse(&self.repo), SafeUrl::parse(url)) {
            (Ok(repo), Ok(url)) => repo.same_origin(&url),
            _ => false,
        };
        match is_of_repo || self.pass_credentials {
            true => access,
            false => Access {
                credentials: None,
                ..access
            },
        }
    }

    fn fetch(&self, client: &Client, reference: &str, helm: &HelmFlags) -> Result<Fetched, String> {
        let access = self.access()?;
        let version = self.version();
        if !self.repo.is_empty() {
            let (url, digest) =
                repositories::find_at(client, &self.repo, reference, &version, &access)?;
            // Before that of another repository takes its place: the login is for this one.
            let access = self.access_to(&url, access);
            // Whoever has the archive in an index that is kept has a say in how to get it.
            let owner = match url.starts_with("oci://") {
                true => None,
                false => repositories::owner(helm, &url)?,
            };
            return match owner {
                Some(owner) => {
                    let access = overridden(access, &owner)?;
                    self.listed(client, helm, &owner.url, &url, &digest, &access)
                }
                None => self.listed(client, helm, &self.repo, &url, &digest, &access),
            };
        }
        let has_host = |scheme: &str| {
            reference
                .strip_prefix(scheme)
                .is_some_and(|rest| !rest.is_empty())
        };
        if has_host("oci://") {
            let access = registry_access(helm, reference, &access);
            let archive = client.pull(reference, &version, &access)?;
            return Ok(Fetched::new(reference, "", archive, access));
        }
        check_address(reference)?;
        if has_host("http://") || has_host("https://") {
            if let Some(owner) = repositories::owner(helm, reference)? {
                let access = overridden(access, &owner)?;
                return self.listed(client, helm, &owner.url, reference, "", &access);
            }
            let chart = ChartRef {
                chart: reference.to_owned(),
                ..ChartRef::default()
            };
            let fetched = client.run(async |fetcher| fetcher.fetch(&chart, &access).await);
            let archive = fetched.map_err(|error| message(&error))?;
            return Ok(Fetched::new("", reference, archive, access));
        }
        // Go's URLs forget the slashes of an empty host.
        let reference = reference.strip_suffix("//").unwrap_or(reference);
        let listed = repositories::find(helm, reference, &version)?;
        let access = overridden(access, &listed.repository)?;
        let origin = &listed.repository.url;
        self.listed(client, helm, origin, &listed.url, &listed.digest, &access)
    }

    /// Gets an archive that an index names.
    fn listed(
        &self,
        client: &Client,
        helm: &HelmFlags,
        repository: &str,
        url: &str,
        digest: &str,
        access: &Access,
    ) -> Result<Fetched, String> {
        match url.starts_with("oci://") {
            true => {
                // The credentials are the repository's, not the registry's.
                let access = Access {
                    credentials: None,
                    ..access.clone()
                };
                let access = registry_access(helm, url, &access);
                let archive = client.quietly(url, "", &access)?;
                Ok(Fetched::new(url, "", archive, access))
            }
            false => {
                let archive = client.archive(repository, url, digest, access)?;
                Ok(Fetched::new(repository, url, archive, access.clone()))
            }
        }
    }
}

/// Refuses addresses that cannot be a chart's.
fn check_address(reference: &str) -> Result<(), String> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let is_scheme =
        |text: &str| text.starts_with(char::is_alphabetic) && text.chars().all(is_letter);
    match reference.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => match rest.split_once('/') {
            None if !rest.is_empty() => Err(repositories::not_absolute(reference)),
            None | Some(("", _)) => Ok(()),
            Some(_) if ["http", "https"].contains(&scheme) => Ok(()),
            Some(_) => Err(format!("scheme {} not supported", quote(scheme))),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// A server with one file, which tells what it was asked.
    fn serve(listener: TcpListener, path: &'static str, body: String) -> Receiver<String> {
        let (asked, seen) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).unwrap() == 0 {
                        break;
                    }
                    request.push(byte[0]);
                }
                let request = String::from_utf8(request).unwrap().to_lowercase();
                let (status, body) = match request.starts_with(&format!("get {path} ")) {
                    true => ("200 OK", body.as_str()),
                    false => ("404 Not Found", ""),
                };
                let answer = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(answer.as_bytes()).unwrap();
                if asked.send(request).is_err() {
                    return;
                }
            }
        });
        seen
    }

    fn index(url: &str) -> String {
        let entry = format!("{{apiVersion: v1, name: web, version: 1.0.0, urls: [\"{url}\"]}}");
        format!("apiVersion: v1\nentries:\n  web:\n  - {entry}\n")
    }

    #[test]
    fn a_login_for_one_repository_is_not_shown_to_another_that_its_index_names() {
        let [ours, theirs] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let at = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
        let (repo, other) = (at(&ours), at(&theirs));
        let far = format!("{other}/web-1.0.0.tgz");
        let own = serve(ours, "/index.yaml", index(&far));
        let seen = serve(theirs, "/web-1.0.0.tgz", "no chart".to_owned());
        // The other one is configured, and its index has the archive too.
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str| home.path().join(name);
        let known = format!("repositories:\n- name: other\n  url: {other}\n");
        std::fs::write(file("repositories.yaml"), known).unwrap();
        std::fs::write(file("other-index.yaml"), index(&far)).unwrap();
        let helm = HelmFlags {
            repository_config: Some(file("repositories.yaml")),
            repository_cache: Some(home.path().to_owned()),
            ..HelmFlags::default()
        };
        let login = |pass_credentials: bool| ChartFlags {
            repo: repo.clone(),
            username: "joe".to_owned(),
            password: "secret".to_owned(),
            pass_credentials,
            ..ChartFlags::default()
        };
        for pass_credentials in [false, true] {
            login(pass_credentials).locate("web", &helm).unwrap_err();
            assert!(own.recv().unwrap().contains("authorization: "));
            let asked = seen.recv().unwrap();
            assert_eq!(
                asked.contains("authorization: "),
                pass_credentials,
                "{asked}"
            );
        }
    }
}
