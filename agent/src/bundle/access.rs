//! From Secrets to how a source is reached.
//!
//! Mirrors `ReadHelmAuthFromSecret` (`internal/bundlereader/auth.go`) and `ReadOptsFromSecret`
//! (`internal/ocistorage/secret.go`); the two disagree about malformed booleans, and so do we. Beside their keys both may have those of
//! Kubernetes: docker's logins and a client certificate. Keys count, types do not: Fleet's controller gives copies types of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use chart::source::{
    Access, Credentials, HostAccess, HostPattern, Hosts, Identity, Logins, LoginsError, Reference,
};
use golib::strconv::parse_bool;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::error::BundleError;
use crate::api::{BundleHelmOptions, LABEL_INTERNAL_SECRET};

/// Begin of the types of Secrets that Fleet makes.
const FLEETS_TYPES: &str = "fleet.cattle.io/";
/// Type of the Secrets that say where a bundle's files are stored.
const OCI_STORAGE_TYPE: &str = "fleet.cattle.io/bundle-oci-storage/v1alpha1";
/// Type the controller gives to Secrets for HelmOps; others are accepted.
const HELM_OPS_TYPE: &str = "fleet.cattle.io/bundle-helmops-access/v1alpha1";

type Data = BTreeMap<String, ByteString>;

/// What a Secret holds; nothing where there is none.
fn data_of(secret: Option<&Secret>) -> &Data {
    static NOTHING: Data = Data::new();
    secret.and_then(|one| one.data.as_ref()).unwrap_or(&NOTHING)
}

fn text<'a>(data: &'a Data, key: &str) -> Option<std::borrow::Cow<'a, str>> {
    data.get(key).map(|value| String::from_utf8_lossy(&value.0))
}

fn invalid(problem: impl Into<String>) -> BundleError {
    BundleError::Secret(problem.into())
}

/// Whether a Secret beside the BundleDeployments is one that Fleet keeps for itself: values, a registration, where a bundle's files are. Not those of charts' credentials:
/// of a Secret that anybody named Fleet makes one copy for all bundles that name it, and marks it so where a chart's is the first.
pub fn is_fleets(secret: &Secret) -> bool {
    match secret.type_.as_deref() {
        None | Some(HELM_OPS_TYPE) => false,
        Some(kind) => kind.starts_with(FLEETS_TYPES),
    }
}

/// Whether a Secret of where files are is its author's, and not the one that Fleet made of it.
fn is_authors_storage(secret: &Secret) -> bool {
    let mut labels = secret.metadata.labels.iter().flatten();
    secret.type_.as_deref() == Some(OCI_STORAGE_TYPE)
        && !labels.any(|(label, _)| label == LABEL_INTERNAL_SECRET)
}

/// Docker's logins of a Secret of type `kubernetes.io/dockerconfigjson` or `kubernetes.io/dockercfg`.
fn logins(data: &Data) -> Result<Option<Arc<Logins>>, BundleError> {
    let read = |key: &str, read: fn(&[u8]) -> Result<Logins, LoginsError>| {
        let read = data.get(key).map(|text| read(&text.0));
        let failed = |error| invalid(format!("{key} of the secret cannot be used: {error}"));
        read.transpose().map_err(failed)
    };
    let newer = read(".dockerconfigjson", Logins::from_docker_config)?;
    let logins = match newer {
        Some(logins) => Some(logins),
        None => read(".dockercfg", Logins::from_dockercfg)?,
    };
    Ok(logins.map(Arc::new))
}

/// The client certificate of a Secret, as those of type `kubernetes.io/tls` have it.
fn identity(data: &Data) -> Result<Option<Identity>, BundleError> {
    let part = |key: &str| data.get(key).filter(|pem| !pem.0.is_empty());
    match (part("tls.crt"), part("tls.key")) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(invalid("tls.crt is set in the secret, but tls.key isn't")),
        (None, Some(_)) => Err(invalid("tls.key is set in the secret, but tls.crt isn't")),
        (Some(certificate), Some(key)) => {
            let key = std::str::from_utf8(&key.0);
            let key = key.map_err(|_| invalid("tls.key of the secret is no PEM text"))?;
            let identity = Identity::new(certificate.0.as_slice(), key);
            let checked = identity.check();
            checked.map_err(|problem| {
                invalid(format!("tls.crt and tls.key of the secret: {problem}"))
            })?;
            Ok(Some(identity))
        }
    }
}

/// A switch. What is none is not quoted: it may be a password under the wrong key.
fn flag(key: &str, value: Option<&str>) -> Result<Option<bool>, BundleError> {
    let flag = value.map(|value| parse_bool(value.as_bytes())).transpose();
    flag.map_err(|_| invalid(format!("failed to parse {key} as bool")))
}

/// The authorities that the source's certificate may be of.
fn authorities(data: &Data) -> Option<Arc<[u8]>> {
    data.get("cacerts").and_then(pem)
}

fn pem(bytes: &ByteString) -> Option<Arc<[u8]>> {
    (!bytes.0.is_empty()).then(|| Arc::from(bytes.0.as_slice()))
}

/// User name and password, both or none.
fn pair(data: &Data) -> Result<Option<Credentials>, BundleError> {
    match (text(data, "username"), text(data, "password")) {
        (Some(username), Some(password)) => Ok(Credentials::new(username, password)),
        (Some(_), None) => Err(invalid("username is set in the secret, but password isn't")),
        (None, Some(_)) => Err(invalid("password is set in the secret, but username isn't")),
        (None, None) => Ok(None),
    }
}

/// How a HelmOp's chart is reached: the Secret it names, if any, under the options' own settings.
///
/// # Errors
/// [`BundleError::Secret`] when the Secret holds half of the credentials, or logins that cannot be read, or is Fleet's own, of another use: whoever names it
/// would have it shown to a repository of their own.
pub fn helm_access(
    options: &BundleHelmOptions,
    secret: Option<&Secret>,
) -> Result<Access, BundleError> {
    let data = data_of(secret);
    if secret.is_some_and(|secret| is_fleets(secret) && !is_authors_storage(secret)) {
        return Err(invalid(
            "the secret is Fleet's own, and no credentials of a chart",
        ));
    }
    if let Some(kind) = secret.and_then(|secret| secret.type_.as_deref())
        && kind != HELM_OPS_TYPE
    {
        logging::debug!(kind, "credentials come from a secret of an unusual type");
    }
    let plain_http =
        text(data, "basicHTTP").is_some_and(|value| parse_bool(value.as_bytes()).unwrap_or(false));
    // The Secret's insecureSkipVerify never counts: the options always override it.
    Ok(Access {
        credentials: pair(data)?,
        ca: authorities(data).or_else(|| pem(&options.ca_bundle)),
        insecure: options.insecure_skip_tls_verify,
        plain_http,
        identity: identity(data)?,
        logins: logins(data)?,
        ..Access::default()
    })
}

/// Whether what a Secret of this cluster has can be used as far as one sees. What cannot must not count as absent: a bundle's own would count in its place.
fn usable(data: &Data) -> Result<(), BundleError> {
    let is_empty = |key: &&str| data.get(*key).is_some_and(|value| value.0.is_empty());
    let keys = ["username", "password", "tls.crt", "tls.key", "cacerts"];
    if let Some(key) = keys.iter().find(|key| is_empty(key)) {
        return Err(invalid(format!("{key} of the secret is empty")));
    }
    let is_no_pem = |text: &ByteString| chart::trust::certificates(&text.0).is_empty();
    match data.get("cacerts").is_some_and(is_no_pem) {
        true => Err(invalid("cacerts of the secret is no certificate in PEM")),
        false => Ok(()),
    }
}

/// What a Secret of this cluster says of hosts that charts come from.
///
/// # Errors
/// [`BundleError::Secret`] when it names no host, or what it says of them cannot be used.
pub fn source_hosts(secret: &Secret) -> Result<Vec<(HostPattern, HostAccess)>, BundleError> {
    let data = data_of(Some(secret));
    usable(data)?;
    let flag = |key: &str| flag(key, text(data, key).as_deref().map(str::trim));
    let access = HostAccess {
        credentials: pair(data)?,
        ca: authorities(data),
        identity: identity(data)?,
        insecure: flag("insecureSkipVerify")?,
        plain_http: flag("basicHTTP")?,
        is_refused: false,
    };
    let named = text(data, "hosts").unwrap_or_default();
    let named = named.split([',', ' ', '\n', '\t', '\r']);
    let mut hosts = Vec::new();
    for (at, host) in named.filter(|host| !host.is_empty()).enumerate() {
        // Not quoted: somebody may have written a login into it.
        let pattern = HostPattern::parse(host)
            .ok_or_else(|| invalid(format!("entry {} of hosts is no host", at + 1)))?;
        hosts.push((pattern, access.clone()));
    }
    if let Some(logins) = logins(data)? {
        // Counted and not quoted: a password may stand in an address.
        match logins.unreadable() {
            0 => {}
            unreadable => {
                let problem = "cannot be read, or have half of user name and password";
                let logins = format!("{unreadable} of docker's logins in the secret {problem}");
                return Err(invalid(logins));
            }
        }
        let logins = Hosts::of_logins(&logins).into_iter();
        hosts.extend(logins.map(|(pattern, login)| {
            let credentials = login.credentials;
            (
                pattern,
                HostAccess {
                    credentials,
                    ..access.clone()
                },
            )
        }));
    }
    match hosts.is_empty() {
        true => Err(invalid(
            "it names no host: neither hosts nor .dockerconfigjson has one",
        )),
        false => Ok(hosts),
    }
}

/// The hosts that a Secret names whatever else is wrong with it: nothing is asked of them, as nobody knows how they may be reached.
pub fn refused_hosts(secret: &Secret) -> Vec<(HostPattern, HostAccess)> {
    let data = data_of(Some(secret));
    let named = text(data, "hosts").unwrap_or_default();
    let named = named.split([',', ' ', '\n', '\t', '\r']);
    let named = named.filter_map(HostPattern::parse);
    let logins = logins(data).ok().flatten();
    let logins = logins.iter().flat_map(|logins| Hosts::of_logins(logins));
    let hosts = named.chain(logins.map(|(pattern, _)| pattern));
    hosts.map(refused).collect()
}

/// Access to a host of which nothing is asked.
pub fn refused(host: HostPattern) -> (HostPattern, HostAccess) {
    let refused = HostAccess {
        is_refused: true,
        ..HostAccess::default()
    };
    (host, refused)
}

/// Where a bundle's files are, and how to get there.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The artifact, tag included.
    pub reference: Reference,
    /// How the registry is reached.
    pub access: Access,
}

/// Reads the Secret of a bundle stored in a registry.
///
/// # Errors
/// [`BundleError::Secret`] when it is of another type, incomplete or malformed.
pub fn storage(secret: &Secret, manifest_id: &str) -> Result<Storage, BundleError> {
    let kind = secret.type_.as_deref().unwrap_or_default();
    if kind != OCI_STORAGE_TYPE {
        return Err(invalid(format!(
            "unexpected secret type: got {kind:?}, want {OCI_STORAGE_TYPE:?}"
        )));
    }
    let data = data_of(Some(secret));
    let reference =
        text(data, "reference").ok_or_else(|| invalid("key \"reference\" not found in secret"))?;
    let flag = |key: &str| flag(key, text(data, key).as_deref());
    let plain_http = flag("basicHTTP")?.unwrap_or(false);
    let insecure = match flag("insecureSkipTLS")? {
        Some(insecure) => insecure,
        None => flag("insecure")?.unwrap_or(false),
    };
    let either = |agent: &str, own: &str| {
        text(data, agent)
            .filter(|text| !text.is_empty())
            .or_else(|| text(data, own))
    };
    let username = either("agentUsername", "username").unwrap_or_default();
    let password = either("agentPassword", "password").unwrap_or_default();
    let base = reference.strip_prefix("oci://").unwrap_or(&reference);
    let repository = golib::path::clean_text(&format!("{base}/{manifest_id}"));
    Ok(Storage {
        reference: Reference::parse(&repository)?.with_tag("latest")?,
        access: Access {
            credentials: Credentials::new(username, password),
            ca: authorities(data),
            insecure,
            plain_http,
            identity: identity(data)?,
            logins: logins(data)?,
            ..Access::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(kind: &str, data: &[(&str, &str)]) -> Secret {
        Secret {
            type_: Some(kind.into()),
            data: Some(
                data.iter()
                    .map(|(key, value)| ((*key).into(), ByteString(value.as_bytes().to_vec())))
                    .collect(),
            ),
            ..Secret::default()
        }
    }

    #[test]
    fn helm_secrets() {
        let options = BundleHelmOptions {
            ca_bundle: ByteString(b"from the controller".to_vec()),
            ..BundleHelmOptions::default()
        };
        let access = helm_access(&options, None).unwrap();
        assert_eq!(access.ca.as_deref(), Some(&b"from the controller"[..]));
        assert!(access.credentials.is_none());
        let full = secret(
            HELM_OPS_TYPE,
            &[
                ("username", "joe"),
                ("password", "pw"),
                ("cacerts", "own"),
                ("insecureSkipVerify", "true"),
                ("basicHTTP", "T"),
            ],
        );
        let access = helm_access(&options, Some(&full)).unwrap();
        assert_eq!(
            access.credentials.as_ref().map(|c| c.username()),
            Some("joe")
        );
        assert_eq!(access.ca.as_deref(), Some(&b"own"[..]));
        assert!(access.plain_http && !access.insecure);
        let odd = secret("Opaque", &[("basicHTTP", "maybe")]);
        assert!(!helm_access(&options, Some(&odd)).unwrap().plain_http);
        let half = secret("Opaque", &[("username", "joe")]);
        let error = helm_access(&options, Some(&half)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "username is set in the secret, but password isn't"
        );
        let mut stored = secret(OCI_STORAGE_TYPE, &[("username", "joe"), ("password", "p")]);
        assert!(helm_access(&options, Some(&stored)).is_ok());
        stored.metadata.labels =
            Some([(LABEL_INTERNAL_SECRET.to_owned(), "true".to_owned())].into());
        let error = helm_access(&options, Some(&stored)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the secret is Fleet's own, and no credentials of a chart"
        );
    }

    #[test]
    fn docker_logins_and_client_certificates() {
        let options = BundleHelmOptions::default();
        let access = |data: &[(&str, &str)]| {
            let secret = secret("kubernetes.io/dockerconfigjson", data);
            let access = helm_access(&options, Some(&secret));
            access.map_err(|error| error.to_string())
        };
        let registry = "https://r.example/v2/".parse().unwrap();
        let user = |access: &Access| {
            let found = access.logins.as_ref()?.for_url(&registry)?.as_ref()?;
            Some(found.username().to_owned())
        };
        let (newer, older) = (
            r#"{"auths": {"r.example": {"username": "newer", "password": "p"}}}"#,
            r#"{"r.example": {"username": "older", "password": "p"}}"#,
        );
        let both = access(&[(".dockerconfigjson", newer), (".dockercfg", older)]).unwrap();
        assert_eq!(user(&both).as_deref(), Some("newer"));
        let old = access(&[(".dockercfg", older)]).unwrap();
        assert_eq!(user(&old).as_deref(), Some("older"));
        assert_eq!(
            access(&[(".dockerconfigjson", "secret")]).unwrap_err(),
            ".dockerconfigjson of the secret cannot be used: it is no JSON object"
        );
        assert_eq!(
            access(&[("tls.crt", "pem")]).unwrap_err(),
            "tls.crt is set in the secret, but tls.key isn't"
        );
        let stored = [
            ("reference", "r.example/fleet"),
            (".dockerconfigjson", newer),
        ];
        let stored = storage(&secret(OCI_STORAGE_TYPE, &stored), "s-1").unwrap();
        assert_eq!(user(&stored.access).as_deref(), Some("newer"));
    }

    #[test]
    fn a_key_that_cannot_be_read_is_not_quoted() {
        let key = "-----BEGIN PRIVATE KEY-----\nTUlJRS1jYW5hcnk=\n-----END PRIVATE KEY-----\n";
        let certificate = "-----BEGIN CERTIFICATE-----\nTUlJRQ==\n-----END CERTIFICATE-----\n";
        let read = |certificate: &str, key: &str| {
            let secret = secret(
                "kubernetes.io/tls",
                &[("tls.crt", certificate), ("tls.key", key)],
            );
            let access = helm_access(&BundleHelmOptions::default(), Some(&secret));
            access.map(drop).map_err(|error| error.to_string())
        };
        read(certificate, key).unwrap();
        // Line breaks that were written out, folded into spaces, or lost.
        for broken in [
            key.replace('\n', "\\n"),
            key.replace('\n', " "),
            key.replace('\n', ""),
        ] {
            let error = read(certificate, &broken).unwrap_err();
            let text =
                "tls.crt and tls.key of the secret: the client's key is no private key in PEM";
            assert_eq!(error, text);
        }
        assert!(
            read("pem", key)
                .unwrap_err()
                .ends_with("no certificate in PEM")
        );
    }

    #[test]
    fn hosts_of_this_cluster() {
        let named = |data: &[(&str, &str)]| {
            let hosts = source_hosts(&secret("Opaque", data));
            let hosts = hosts.map_err(|error| error.to_string())?;
            let name = |(pattern, access): &(HostPattern, HostAccess)| {
                let user = access
                    .credentials
                    .as_ref()
                    .map_or("", Credentials::username);
                format!("{pattern} {user}")
            };
            Ok::<_, String>(hosts.iter().map(name).collect::<Vec<_>>())
        };
        let login = r#"{"auths": {"r.example/team": {"username": "ann", "password": "p"}}}"#;
        let all = [
            ("hosts", "charts.example:8443/stable,\n r.example"),
            ("username", "joe"),
            ("password", "p"),
            (".dockerconfigjson", login),
        ];
        let want = [
            "charts.example:8443/stable joe",
            "r.example joe",
            "r.example/team ann",
        ];
        assert_eq!(named(&all).unwrap(), want);
        let refused = |data: &[(&str, &str)]| named(data).unwrap_err();
        assert!(refused(&[("username", "joe"), ("password", "p")]).starts_with("it names no host"));
        assert_eq!(
            refused(&[("hosts", "r.example https://robot:token@h")]),
            "entry 2 of hosts is no host"
        );
        let odd = refused(&[("hosts", "h"), ("insecureSkipVerify", "maybe")]);
        assert_eq!(odd, "failed to parse insecureSkipVerify as bool");
        assert_eq!(
            refused(&[("hosts", "charts.example\\stable")]),
            "entry 1 of hosts is no host"
        );
    }

    #[test]
    fn an_unreadable_login_of_this_cluster_refuses_its_hosts() {
        let logins = |broken: &str| {
            let good = r#""good.example": {"username": "ann", "password": "p"}"#;
            secret(
                "Opaque",
                &[
                    (
                        ".dockerconfigjson",
                        &format!(r#"{{"auths": {{{good}, {broken}}}}}"#),
                    ),
                    ("insecureSkipVerify", "false"),
                ],
            )
        };
        for broken in [
            r#""broken.example": {"auth": "not base64 of a pair"}"#,
            r#""broken.example": {"username": "hunter2", "password": ""}"#,
            r#""broken.example": "hunter2""#,
        ] {
            let secret = logins(broken);
            assert_eq!(
                source_hosts(&secret).unwrap_err().to_string(),
                "1 of docker's logins in the secret cannot be read, or have half of user name and password"
            );
            let refused = refused_hosts(&secret);
            let names: Vec<_> = refused.iter().map(|(host, _)| host.to_string()).collect();
            assert_eq!(names, ["broken.example", "good.example"]);
            assert!(refused.iter().all(|(_, access)| access.is_refused));
        }
        let unknown = logins(r#""ann:hunter2@broken.example": {"auth": "YW5uOnA="}"#);
        let error = source_hosts(&unknown).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
        let of_a_helper = logins(r#""helper.example": {}"#);
        assert_eq!(source_hosts(&of_a_helper).unwrap().len(), 1);
    }

    #[test]
    fn what_is_empty_is_not_absent_for_this_cluster() {
        for (data, error) in [
            (
                [("username", "reader"), ("password", "")],
                "password of the secret is empty",
            ),
            (
                [("username", ""), ("password", "")],
                "username of the secret is empty",
            ),
            (
                [("tls.crt", ""), ("tls.key", "")],
                "tls.crt of the secret is empty",
            ),
            (
                [("cacerts", ""), ("basicHTTP", "false")],
                "cacerts of the secret is empty",
            ),
            (
                [("cacerts", "MIIB"), ("basicHTTP", "false")],
                "cacerts of the secret is no certificate in PEM",
            ),
        ] {
            let [first, second] = data;
            let secret = secret("Opaque", &[("hosts", "r.example"), first, second]);
            assert_eq!(source_hosts(&secret).unwrap_err().to_string(), error);
            assert_eq!(refused_hosts(&secret).len(), 1);
        }
    }

    #[test]
    fn storage_secrets() {
        let data = [
            ("reference", "registry.example:5000/fleet/"),
            ("username", "u"),
            ("password", "p"),
            ("agentUsername", "agent"),
            ("insecure", "1"),
        ];
        let storage = storage(&secret(OCI_STORAGE_TYPE, &data), "s-1").unwrap();
        assert_eq!(
            storage.reference.to_string(),
            "oci://registry.example:5000/fleet/s-1:latest"
        );
        assert_eq!(
            storage
                .access
                .credentials
                .map(|c| c.username().to_owned())
                .as_deref(),
            Some("agent")
        );
        assert!(storage.access.insecure && !storage.access.plain_http);
    }

    #[test]
    fn unusable_storage_secrets() {
        let text = |kind: &str, data: &[(&str, &str)]| {
            storage(&secret(kind, data), "s-1").unwrap_err().to_string()
        };
        assert_eq!(
            text("Opaque", &[]),
            format!("unexpected secret type: got \"Opaque\", want {OCI_STORAGE_TYPE:?}")
        );
        assert_eq!(
            text(OCI_STORAGE_TYPE, &[]),
            "key \"reference\" not found in secret"
        );
        let odd = [("reference", "r/x"), ("basicHTTP", "maybe")];
        assert_eq!(
            text(OCI_STORAGE_TYPE, &odd),
            "failed to parse basicHTTP as bool"
        );
    }
}
