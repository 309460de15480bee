//! `.Files`: what a chart carries besides its templates. Mirrors `pkg/engine/files.go`.

use std::collections::BTreeMap;

use golib::glob::Glob;
use templating::Method;
use templating::value::MapType;
use templating::{Error, List, Map, Operand, State, Str, Type, Value};

use super::values::{argument, receiver};
use crate::chart::File;

/// `engine.files`
static FILES: MapType = MapType {
    name: "engine.files",
    element: Type::Bytes,
    named: true,
    methods: &[
        Method::new("Get", &[Type::String], get),
        Method::new("GetBytes", &[Type::String], get_bytes),
        Method::new("Glob", &[Type::String], glob),
        Method::new("Lines", &[Type::String], lines),
        Method::new("AsConfig", &[], as_config),
        Method::new("AsSecrets", &[], as_secrets),
    ],
};

/// The files of one chart, by path.
pub(super) fn object(files: &[File]) -> Map {
    let content = |file: &File| Value::Bytes(Some(Str::kept(file.data.clone()).into()));
    let files = files
        .iter()
        .map(|file| (file.name.as_str().into(), content(file)));
    Map::typed(&FILES, files.collect())
}

fn content(files: &Map, name: &Str) -> Str {
    match files.get(name) {
        Some(Value::Bytes(Some(bytes))) => (*bytes).clone(),
        _ => Str::default(),
    }
}

fn get(_: &mut State<'_>, value: &Value, args: &mut [Operand]) -> Result<Operand, Error> {
    Ok(Operand::exact(Value::Str(content(
        receiver(value)?,
        &argument(args),
    ))))
}

fn get_bytes(_: &mut State<'_>, value: &Value, args: &mut [Operand]) -> Result<Operand, Error> {
    let content = content(receiver(value)?, &argument(args));
    Ok(Operand::exact(Value::Bytes(Some(content.into()))))
}

fn glob(_: &mut State<'_>, value: &Value, args: &mut [Operand]) -> Result<Operand, Error> {
    // An invalid pattern selects everything, as in Helm.
    let pattern = Glob::compile(&argument(args).to_str_lossy(), '/').ok();
    let matches = |name: &Str| {
        pattern
            .as_ref()
            .is_none_or(|pattern| pattern.matches(&name.to_str_lossy()))
    };
    let matching: BTreeMap<Str, Value> = receiver(value)?.with(|files| {
        let matching = files.iter().filter(|(name, _)| matches(name));
        matching
            .map(|(name, content)| (name.clone(), content.clone()))
            .collect()
    });
    Ok(Operand::exact(Map::typed(&FILES, matching).into()))
}

fn lines(_: &mut State<'_>, value: &Value, args: &mut [Operand]) -> Result<Operand, Error> {
    let text = content(receiver(value)?, &argument(args));
    if text.is_empty() {
        return Ok(Operand::exact(List::strings::<Str>([]).into()));
    }
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    Ok(Operand::exact(
        List::strings(text.split(|&byte| byte == b'\n')).into(),
    ))
}

fn as_config(_: &mut State<'_>, value: &Value, _: &mut [Operand]) -> Result<Operand, Error> {
    as_yaml(receiver(value)?, |content| {
        content.to_str_lossy().into_owned()
    })
}

fn as_secrets(_: &mut State<'_>, value: &Value, _: &mut [Operand]) -> Result<Operand, Error> {
    as_yaml(receiver(value)?, |content| golib::base64::encode(content))
}

/// YAML of base name to text. Of files with one base name the last by path is kept; Helm keeps any.
fn as_yaml(files: &Map, text: impl Fn(&Str) -> String) -> Result<Operand, Error> {
    let mut data = serde_json::Map::new();
    for name in files.keys() {
        let base = String::from_utf8_lossy(golib::path::base(&name)).into_owned();
        data.insert(base, text(&content(files, &name)).into());
    }
    // A text YAML cannot hold gives nothing, as in Helm.
    let yaml = golib::yaml::encode(&serde_json::Value::Object(data)).unwrap_or_default();
    Ok(Operand::exact(
        yaml.strip_suffix('\n').unwrap_or(&yaml).into(),
    ))
}
