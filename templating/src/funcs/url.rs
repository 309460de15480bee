//! Sprig's `url.go`: URLs to dicts and back, by the rules of Go's `net/url`.

use golib::url::{Url, User};

use super::functions::Functions;
use crate::error::Error;
use crate::value::{Map, Str, Value};

pub(super) fn add(f: &mut Functions) {
    f.add("urlParse", |text: Str| -> Result<Map, Error> {
        let url =
            Url::parse(&text).map_err(|e| Error::message(format!("unable to parse url: {e}")))?;
        let userinfo = url.user.as_ref().map(User::to_text).unwrap_or_default();
        let entries: [(&str, Vec<u8>); 8] = [
            ("hostname", url.hostname().to_vec()),
            ("scheme", url.scheme),
            ("host", url.host),
            ("path", url.path),
            ("query", url.query),
            ("opaque", url.opaque),
            ("fragment", url.fragment),
            ("userinfo", userinfo),
        ];
        Ok(entries
            .into_iter()
            .map(|(key, value)| (key, Str::from(value)))
            .collect())
    });
    f.add("urlJoin", url_join);
}

fn url_join(dict: Map) -> Result<Vec<u8>, Error> {
    let part = |key: &str| match dict.get(key) {
        None => Ok(Vec::new()),
        Some(Value::Str(text)) => Ok(text.to_vec()),
        Some(Value::Nil) => Err(super::list::nil_dereference()),
        Some(other) => Err(Error::message(format!(
            "unable to parse {key} key, must be of type string, but {} found",
            other.kind()
        ))),
    };
    let mut url = Url {
        scheme: part("scheme")?,
        host: part("host")?,
        path: part("path")?,
        query: part("query")?,
        opaque: part("opaque")?,
        fragment: part("fragment")?,
        ..Url::default()
    };
    let userinfo = part("userinfo")?;
    if !userinfo.is_empty() {
        let text = [b"proto://", userinfo.as_slice(), b"@host"].concat();
        let parsed = Url::parse(&text)
            .map_err(|e| Error::message(format!("unable to parse userinfo in dict: {e}")))?;
        url.user = parsed.user;
    }
    Ok(url.to_text())
}
