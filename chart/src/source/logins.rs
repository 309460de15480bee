//! Logins by address, as docker, helm and Kubernetes keep them: `config.json`, `.dockerconfigjson` and `.dockercfg`.
//!
//! An entry is read as oras reads it (`registry/remote/credentials`): `auth` before user name and password, an identity token to be
//! traded for others, a registry token to be shown as it is. Which entry is for an address follows the kubelet
//! (`pkg/credentialprovider/keyring.go`) and containers-auth.json: an entry may be for a path below a host, the longest wins, and host
//! labels may be patterns. Credential helpers are not asked: a cluster has none.

use std::fmt;

use logging::Name;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::credentials::Credentials;
use super::host::{Address, HostPattern};

/// The logins of one file or Secret. Prints nothing of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Logins {
    /// By address, those that take precedence first; `None` is one that cannot be read.
    entries: Vec<(HostPattern, Option<Credentials>)>,
    /// How many cannot be read, be it for their login or for their address.
    unreadable: usize,
    digest: [u8; 32],
}

/// Why logins cannot be read. The text quotes nothing of them but addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginsError {
    /// Not JSON, or not an object.
    #[error("it is no JSON object")]
    NotJson,
    /// `auths` is no object.
    #[error("its \"auths\" is no object")]
    NoAuths,
}

impl Logins {
    /// Reads `config.json` of docker, which is `.dockerconfigjson` of a Secret too: the logins are below `auths`.
    ///
    /// ```
    /// use chart::source::Logins;
    ///
    /// let text = br#"{"auths": {"registry.example:5000": {"auth": "am9lOnNlY3JldA=="}}}"#;
    /// assert!(Logins::from_docker_config(text).is_ok());
    /// assert!(Logins::from_docker_config(b"[]").is_err());
    /// ```
    ///
    /// # Errors
    /// It is no such file. An entry that cannot be read is no error here: it is reported when its address is asked.
    pub fn from_docker_config(text: &[u8]) -> Result<Self, LoginsError> {
        match object(text)?.get("auths") {
            // Credential helpers may have them all.
            None | Some(Value::Null) => Ok(Self::from_entries(&Map::new())),
            Some(Value::Object(auths)) => Ok(Self::from_entries(auths)),
            Some(_) => Err(LoginsError::NoAuths),
        }
    }

    /// Reads `.dockercfg`, docker's older form: the logins themselves.
    ///
    /// ```
    /// use chart::source::Logins;
    ///
    /// let logins = Logins::from_dockercfg(br#"{"registry.example": {"auth": "am9lOnNlY3JldA=="}}"#)?;
    /// assert!(logins.for_url(&"https://registry.example/v2/".parse()?).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// It is no such file.
    pub fn from_dockercfg(text: &[u8]) -> Result<Self, LoginsError> {
        Ok(Self::from_entries(&object(text)?))
    }

    fn from_entries(found: &Map<String, Value>) -> Self {
        let mut entries = Vec::with_capacity(found.len());
        let mut unreadable = 0;
        for (address, login) in found {
            let credentials = match credentials(login) {
                // What a credential helper keeps, and what was logged out of, stands there empty.
                Some(None) => continue,
                found => found.flatten(),
            };
            let pattern = HostPattern::parse_login(address);
            if pattern.is_none() || credentials.is_none() {
                unreadable += 1;
                // A password may stand before the host.
                let (_, host) = address.rsplit_once('@').unwrap_or(("", address));
                logging::warn!(host = Name(host), "a login of docker's cannot be read");
            }
            entries.extend(pattern.map(|pattern| (pattern, credentials)));
        }
        entries.sort_by(|(a, _), (b, _)| a.precedence().cmp(&b.precedence()));
        let digest = Sha256::digest(Value::Object(found.clone()).to_string()).into();
        Self {
            entries,
            unreadable,
            digest,
        }
    }

    /// How many entries cannot be read: for whoever must not go on without any of them. One that is empty, as of a credential helper, is none.
    ///
    /// ```
    /// use chart::source::Logins;
    ///
    /// let file = br#"{"auths": {"a.example": {"auth": "?"}, "b.example": {"username": "joe"}, "c.example": {}}}"#;
    /// assert_eq!(Logins::from_docker_config(file)?.unreadable(), 2);
    /// # Ok::<(), chart::source::LoginsError>(())
    /// ```
    pub fn unreadable(&self) -> usize {
        self.unreadable
    }

    /// The credentials to show at an address, by the first of the entries that are for it; `Some(None)` where that one cannot be read.
    ///
    /// ```
    /// use chart::source::Logins;
    ///
    /// let file = br#"{"auths": {"registry.example": {"auth": "am9lOnNlY3JldA=="}, "broken.example": {"auth": "?"}}}"#;
    /// let logins = Logins::from_docker_config(file)?;
    /// let login = |url: &str| logins.for_url(&url.parse().unwrap());
    /// assert_eq!(login("https://registry.example/v2/").unwrap().as_ref().unwrap().username(), "joe");
    /// assert_eq!(login("https://broken.example/v2/"), Some(&None));
    /// assert_eq!(login("https://elsewhere.example/v2/"), None);
    /// # Ok::<(), chart::source::LoginsError>(())
    /// ```
    pub fn for_url(&self, url: &Url) -> Option<&Option<Credentials>> {
        self.entry_for(url).map(|(_, credentials)| credentials)
    }

    /// The same with the addresses that they are for.
    pub(super) fn entry_for(&self, url: &Url) -> Option<&(HostPattern, Option<Credentials>)> {
        let address = Address::of(url);
        let mut entries = self.entries.iter();
        entries.find(|(pattern, _)| pattern.is_for(&address))
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &(HostPattern, Option<Credentials>)> {
        self.entries.iter()
    }

    pub(super) fn digest(&self) -> &[u8] {
        &self.digest
    }
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.entries.iter().map(|(pattern, _)| pattern);
        f.debug_set().entries(addresses).finish()
    }
}

fn object(text: &[u8]) -> Result<Map<String, Value>, LoginsError> {
    serde_json::from_slice(text).map_err(|_| LoginsError::NotJson)
}

/// What an entry has; `None` where that cannot be read.
fn credentials(login: &Value) -> Option<Option<Credentials>> {
    let login = login.as_object()?;
    let text = |field: &str| match login.get(field) {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(_) => None,
    };
    let (mut username, mut password) = (text("username")?, text("password")?);
    let auth = text("auth")?;
    if !auth.is_empty() {
        (username, password) = pair(&auth)?;
    }
    let mut identity_token = text("identitytoken")?;
    // Docker's credential helpers mark an identity token with this user name.
    if username == "<token>" && identity_token.is_empty() {
        identity_token = std::mem::take(&mut password);
    }
    let is_empty = username.is_empty() && password.is_empty();
    let login = Credentials::login(username, password, identity_token, text("registrytoken")?);
    // Half of user name and password is no login, and not none either.
    (login.is_some() || is_empty).then_some(login)
}

/// User and password of an `auth`. Docker pads with NUL, hand-made ones end in a line break.
fn pair(auth: &str) -> Option<(String, String)> {
    let decoded = golib::base64::decode(auth.trim()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (username, password) = text.split_once(':')?;
    Some((
        username.to_owned(),
        password.trim_end_matches('\0').to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn logins(auths: Value) -> Logins {
        Logins::from_docker_config(json!({ "auths": auths }).to_string().as_bytes()).unwrap()
    }

    fn user(logins: &Logins, url: &str) -> Option<String> {
        let found = logins.for_url(&Url::parse(url).unwrap())?;
        Some(found.as_ref()?.username().to_owned())
    }

    #[rstest]
    #[case::host_and_port("https://r.example:5000/v2/a/web/", Some("port"))]
    #[case::another_port("https://r.example:5001/v2/a/web/", None)]
    #[case::host("https://plain.example/v2/web/", Some("plain"))]
    #[case::the_default_port("https://plain.example:443/v2/web/", Some("plain"))]
    #[case::host_with_its_default_port("https://secure.example/v2/web/", Some("secure"))]
    #[case::that_port_over_plain_http("http://secure.example/v2/web/", None)]
    #[case::an_old_address("https://old.example/v2/any/web/", Some("old"))]
    #[case::docker("https://registry-1.docker.io/v2/library/web/", Some("hub"))]
    #[case::a_repository("https://team.example/v2/a/web/", Some("web"))]
    #[case::the_longest_path("https://team.example/v2/a/other/", Some("a"))]
    #[case::no_other_repository("https://team.example/v2/ab/", Some("team"))]
    #[case::a_folder("https://folder.example/v2/only/this/web/", Some("folder"))]
    #[case::beside_a_folder("https://folder.example/v2/only/that/", None)]
    #[case::a_pattern("https://eu.mirror.example/v2/web/", Some("mirror"))]
    #[case::a_label_too_many("https://a.eu.mirror.example/v2/web/", None)]
    #[case::a_host_before_a_pattern("https://us.mirror.example/v2/web/", Some("us"))]
    #[case::a_repository_of_charts("https://charts.example/stable/index.yaml", Some("stable"))]
    #[case::beside_it("https://charts.example/stable-not/index.yaml", None)]
    #[case::case_does_not_count("https://PLAIN.example/v2/web/", Some("plain"))]
    #[case::unknown("https://nobody.example/v2/web/", None)]
    fn a_login_is_found_by_address(#[case] url: &str, #[case] want: Option<&str>) {
        let auth = |user: &str| json!({ "auth": golib::base64::encode(format!("{user}:pw")) });
        let logins = logins(json!({
            "r.example:5000": auth("port"),
            "plain.example": auth("plain"),
            "secure.example:443": auth("secure"),
            "https://old.example/v1/": auth("old"),
            "https://index.docker.io/v1/": auth("hub"),
            "team.example": auth("team"),
            "team.example/a": auth("a"),
            "team.example/a/web": auth("web"),
            "https://folder.example/only/this/": auth("folder"),
            "*.mirror.example": auth("mirror"),
            "us.mirror.example": auth("us"),
            "charts.example/stable": auth("stable"),
        }));
        assert_eq!(user(&logins, url).as_deref(), want);
    }

    #[test]
    fn docker_config_entries_give_their_login() {
        let logins = logins(json!({
            "auth.example": { "auth": golib::base64::encode("joe:p:q\0\0"), "username": "other" },
            "clear.example": { "username": "joe", "password": "p" },
            "identity.example": { "auth": golib::base64::encode("joe:"), "identitytoken": "id" },
            "helper.example": { "username": "<token>", "password": "id" },
            "token.example": { "registrytoken": "rt" },
            "empty.example": {},
            "null.example": { "auth": null },
        }));
        let at = |host: &str| {
            let url = Url::parse(&format!("https://{host}/v2/")).unwrap();
            logins.for_url(&url)?.as_ref()
        };
        let auth = at("auth.example").unwrap();
        assert_eq!((auth.username(), auth.password()), ("joe", "p:q"));
        assert_eq!(at("clear.example").unwrap().password(), "p");
        for host in ["identity.example", "helper.example"] {
            let found = at(host).unwrap();
            assert_eq!(
                (found.is_pair(), found.identity_token()),
                (false, Some("id"))
            );
        }
        assert_eq!(at("token.example").unwrap().registry_token(), Some("rt"));
        assert!(at("empty.example").is_none() && at("null.example").is_none());
        assert!(!format!("{logins:?}").contains("p:q"));
    }

    #[test]
    fn an_unreadable_login_is_not_quoted_and_affects_no_other_host() {
        let error = |text: &str| Logins::from_docker_config(text.as_bytes()).unwrap_err();
        assert_eq!(error("hunter2"), LoginsError::NotJson);
        assert_eq!(error(r#"{"auths": "hunter2"}"#), LoginsError::NoAuths);
        for none in [
            "{}",
            r#"{"auths": null}"#,
            r#"{"credHelpers": {"r.example": "ecr"}}"#,
        ] {
            let none = Logins::from_docker_config(none.as_bytes()).unwrap();
            assert_eq!(user(&none, "https://r.example/v2/"), None);
        }
        let some = logins(json!({
            "https://joe:hunter2@r.example": { "auth": golib::base64::encode("joe:p") },
            "text.example": "hunter2",
            "field.example": { "auth": { "x": "hunter2" } },
            "auth.example": { "auth": "hunter2" },
            "half.example": { "username": "joe", "password": "" },
            "other-half.example": { "auth": golib::base64::encode(":p") },
            "helper.example": {},
            "HTTPS://good.example": { "auth": golib::base64::encode("joe:p") },
        }));
        // With the one whose address has a password in it.
        assert_eq!(some.unreadable(), 6);
        for broken in [
            "text.example",
            "field.example",
            "auth.example",
            "half.example",
            "other-half.example",
        ] {
            let url = Url::parse(&format!("https://{broken}/v2/")).unwrap();
            assert_eq!(some.for_url(&url), Some(&None), "{broken}");
        }
        assert_eq!(
            user(&some, "https://good.example/v2/").as_deref(),
            Some("joe")
        );
        assert!(!format!("{some:?}").contains("hunter2"));
        let old = br#"{"r.example": {"auth": "am9lOnNlY3JldA=="}}"#;
        let old = Logins::from_dockercfg(old).unwrap();
        assert_eq!(user(&old, "https://r.example/v2/").as_deref(), Some("joe"));
    }
}
