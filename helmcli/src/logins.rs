//! Logins to registries: helm's own, then docker's.
//!
//! Mirrors the credential stores of oras that helm uses (`registry/remote/credentials`). Credential helpers are not asked.

use std::path::{Path, PathBuf};

use chart::source::Credentials;
use serde_json::Value;

use crate::helm_home::HelmFlags;

/// What `helm registry login` or `docker login` stored for a registry.
pub(crate) fn for_registry(helm: &HelmFlags, registry: &str) -> Option<Credentials> {
    let files = [Some(helm.registry_logins()), docker_config()];
    let stored = files.iter().flatten();
    let (user, password) = stored
        .filter_map(|file| stored_in(&read(file)?, registry))
        .next()?;
    Credentials::new(&user, &password)
}

fn docker_config() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = set("DOCKER_CONFIG").map(PathBuf::from);
    let folder = folder.or_else(|| Some(Path::new(&set("HOME")?).join(".docker")));
    Some(folder?.join("config.json"))
}

fn read(file: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// User and password.
fn stored_in(config: &Value, registry: &str) -> Option<(String, String)> {
    // Docker's own registry goes by the address it once had.
    let name = match registry {
        "docker.io" | "registry-1.docker.io" => "https://index.docker.io/v1/",
        other => other,
    };
    let logins = config["auths"].as_object()?;
    let by_host = || {
        let mut logins = logins.iter();
        logins.find_map(|(address, login)| (host(address) == name).then_some(login))
    };
    let login = logins.get(name).or_else(by_host)?;
    let text = |field: &str| login[field].as_str().unwrap_or_default().to_owned();
    let encoded = text("auth");
    if encoded.is_empty() {
        let (user, password) = (text("username"), text("password"));
        return (!user.is_empty()).then_some((user, password));
    }
    let pair = String::from_utf8(golib::base64::decode(encoded).ok()?).ok()?;
    let (user, password) = pair.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// The host of an address as older files have it.
fn host(address: &str) -> &str {
    let bare = address
        .strip_prefix("http://")
        .or_else(|| address.strip_prefix("https://"))
        .unwrap_or(address);
    bare.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::by_host("r.example:5000", Some(("a", "p:q")))]
    #[case::by_an_old_address("old.example", Some(("b", "p")))]
    #[case::docker("docker.io", Some(("c", "p")))]
    #[case::in_the_clear("clear.example", Some(("d", "p")))]
    #[case::kept_elsewhere("helper.example", None)]
    #[case::broken("broken.example", None)]
    #[case::unknown("example", None)]
    fn logins(#[case] registry: &str, #[case] want: Option<(&str, &str)>) {
        let auth = |pair: &str| json!({ "auth": golib::base64::encode(pair) });
        let config = json!({ "auths": {
            "r.example:5000": auth("a:p:q"),
            "https://old.example/v1/": auth("b:p"),
            "https://index.docker.io/v1/": auth("c:p"),
            "clear.example": { "username": "d", "password": "p" },
            "helper.example": {},
            "broken.example": { "auth": "?" },
        }});
        let want = want.map(|(user, password)| (user.to_owned(), password.to_owned()));
        assert_eq!(stored_in(&config, registry), want);
    }
}
