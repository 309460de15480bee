//! ConfigMaps and Secrets from literals, files and env files, and the hash that goes into their names (`kv`,
//! `internal/generators`, `hasher`).

use golib::yaml::node::{Kind, Node, tag};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::datamap::{add_entries, config_map_value, encode_base64, text_value};
use crate::error::{Context as _, Error, Result};
use crate::fns;
use crate::kustomization::{ConfigMapArgs, GeneratorArgs, GeneratorOptions, SecretArgs};
use crate::loader::Loader;
use crate::resource::{Behavior, NEEDS_HASH, Resource};

/// Keys with their values, which may be any bytes.
type Data = std::collections::BTreeMap<String, Vec<u8>>;

pub(crate) fn config_map(loader: &Loader<'_>, args: &ConfigMapArgs) -> Result<Resource> {
    let args = &args.args;
    let mut node = base_node("ConfigMap", args)?;
    let entries = data_of(loader, args, false)?.into_iter();
    add_entries(
        &mut node,
        entries.map(|(key, value)| {
            let (name, value) = config_map_value(&value);
            (name, key, value)
        }),
    )?;
    finish(node, args, loader)
}

pub(crate) fn secret(loader: &Loader<'_>, args: &SecretArgs) -> Result<Resource> {
    let mut node = base_node("Secret", &args.args)?;
    let secret_type = if args.secret_type.is_empty() {
        "Opaque"
    } else {
        &args.secret_type
    };
    fns::set_field(&mut node, "type", Some(Node::string(secret_type)))?;
    let data = data_of(loader, &args.args, true)?;
    fns::lookup_create(&mut node, &["data"], Kind::Mapping)?;
    let entries = data.into_iter();
    add_entries(
        &mut node,
        entries.map(|(key, value)| ("data", key, text_value(encode_base64(&value)))),
    )?;
    finish(node, &args.args, loader)
}

fn base_node(kind: &str, args: &GeneratorArgs) -> Result<Node> {
    let mut node = Node::collection(Kind::Mapping);
    for (key, value) in [("apiVersion", "v1"), ("kind", kind)] {
        node.content.push(Node::scalar(key));
        node.content.push(Node::tagged(value, tag::STR));
    }
    if args.name.is_empty() {
        return Err(Error::new("a configmap must have a name"));
    }
    let mut set = |field: &str, text: &str| -> Result<()> {
        match fns::lookup_create(&mut node, &["metadata"], Kind::Mapping)? {
            Some(metadata) => fns::set_field(metadata, field, Some(Node::string(text))),
            None => Ok(()),
        }
    };
    set("name", &args.name)?;
    if !args.namespace.is_empty() {
        set("namespace", &args.namespace)?;
    }
    Ok(node)
}

fn finish(mut node: Node, args: &GeneratorArgs, loader: &Loader<'_>) -> Result<Resource> {
    let options = args.options.as_ref();
    if let Some(options) = options {
        for (key, value) in &options.labels {
            fns::set_label(&mut node, key, value)?;
        }
        for (key, value) in &options.annotations {
            fns::set_annotation(&mut node, key, value)?;
        }
        if options.immutable {
            fns::set_field(
                &mut node,
                "immutable",
                Some(Node::tagged("true", tag::BOOL)),
            )?;
        }
    }
    let mut resource = Resource::new(node, &loader.build.api);
    if !options.is_some_and(|options: &GeneratorOptions| options.disable_name_suffix_hash) {
        resource.enable(NEEDS_HASH)?;
    }
    resource.set_behavior(Behavior::parse(&args.behavior))?;
    Ok(resource)
}

fn go_list(texts: &[String]) -> String {
    format!("[{}]", texts.join(" "))
}

fn data_of(loader: &Loader<'_>, args: &GeneratorArgs, is_secret: bool) -> Result<Data> {
    let pairs = pairs_of(loader, args, is_secret).context("loading KV pairs")?;
    let mut data = Data::new();
    for (key, value) in pairs {
        loader.build.keep(key.len() + value.len())?;
        loader
            .build
            .grow_by(key.len() + value.len() + 2 * size_of::<Node>())?;
        if data.contains_key(&key) {
            return Err(Error::new(format!(
                "configmap {} illegally repeats the key `{key}`",
                args.name
            )));
        }
        data.insert(key, value);
    }
    Ok(data)
}

fn pairs_of(
    loader: &Loader<'_>,
    args: &GeneratorArgs,
    is_secret: bool,
) -> Result<Vec<(String, Vec<u8>)>> {
    let args = &args.sources;
    let mut pairs = Vec::new();
    let envs = args.envs.iter().try_for_each(|path| {
        let content = loader.load(path)?;
        env_lines(&content, &mut pairs, is_secret)
    });
    envs.with_context(|| format!("env source files: {}", go_list(&args.envs)))?;
    let literals: Result<()> = args.literals.iter().try_for_each(|literal| {
        pairs.push(parse_literal(literal)?);
        Ok(())
    });
    if is_secret {
        // What a Secret is to hold is not for messages.
        literals.map_err(|_| {
            Error::new("literal sources: invalid literal source, expected key=value")
        })?;
    } else {
        literals.with_context(|| format!("literal sources {}", go_list(&args.literals)))?;
    }
    let files: Result<()> = args.files.iter().try_for_each(|source| {
        let (key, path) = parse_file_source(source)?;
        pairs.push((key, loader.load(&path)?));
        Ok(())
    });
    files.with_context(|| format!("file sources: {}", go_list(&args.files)))?;
    Ok(pairs)
}

fn env_lines(content: &[u8], pairs: &mut Vec<(String, Vec<u8>)>, is_secret: bool) -> Result<()> {
    /// Where Go's scanner gives up, silently, with what is before.
    const MAX_LINE: usize = 64 * 1024;
    let mut lines = content.split(|byte| *byte == b'\n').peekable();
    let mut number = 0;
    while let Some(line) = lines.next() {
        if lines.peek().is_none() && line.is_empty() {
            break;
        }
        if line.len() >= MAX_LINE {
            break;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Ok(text) = std::str::from_utf8(line) else {
            if is_secret {
                return Err(Error::new("a line has invalid utf8 bytes"));
            }
            return Err(Error::new(format!(
                "line {} has invalid utf8 bytes : {}",
                bytes_as_numbers(line),
                String::from_utf8_lossy(line)
            )));
        };
        let text = if number == 0 {
            text.strip_prefix('\u{feff}').unwrap_or(text)
        } else {
            text
        };
        number += 1;
        let text = text.trim_start();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        if !key.is_empty() {
            pairs.push((key.to_owned(), value.as_bytes().to_vec()));
        }
    }
    Ok(())
}

/// As Go's `%d` prints a slice of bytes.
fn bytes_as_numbers(line: &[u8]) -> String {
    let numbers: Vec<String> = line.iter().map(u8::to_string).collect();
    go_list(&numbers)
}

fn parse_literal(source: &str) -> Result<(String, Vec<u8>)> {
    match source.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            let quoted = value.len() >= 2
                && (value.starts_with('"') && value.ends_with('"')
                    || value.starts_with('\'') && value.ends_with('\''));
            let value = if quoted {
                &value[1..value.len() - 1]
            } else {
                value
            };
            Ok((key.to_owned(), value.as_bytes().to_vec()))
        }
        _ => Err(Error::new(format!(
            "invalid literal source {source}, expected key=value"
        ))),
    }
}

fn parse_file_source(source: &str) -> Result<(String, String)> {
    let quote = |text: &str| golib::strconv::quote(text);
    match source.matches('=').count() {
        0 => {
            let base = golib::path::base(source.as_bytes());
            Ok((
                String::from_utf8_lossy(base).into_owned(),
                source.to_owned(),
            ))
        }
        1 if source.starts_with('=') => Err(Error::new(format!(
            "missing key name for file path {} in source {}",
            quote(source.trim_start_matches('=')),
            quote(source)
        ))),
        1 if source.ends_with('=') => Err(Error::new(format!(
            "missing file path for key name {} in source {}",
            quote(source.trim_end_matches('=')),
            quote(source)
        ))),
        1 => {
            let (key, path) = source.split_once('=').unwrap_or((source, ""));
            Ok((key.to_owned(), path.to_owned()))
        }
        _ => Err(Error::new(format!(
            "source {} key name or file path contains '='",
            quote(source)
        ))),
    }
}

/// The hash of what an object holds, for its name.
pub(crate) fn hash(node: &Node) -> Result<String> {
    let kind = fns::field(node, "kind").map_or("", |kind| &*kind.value);
    let mut entries = Map::new();
    entries.insert("kind".into(), kind.into());
    // Go looks for `metadata/name` as if it were one field, and finds nothing.
    entries.insert("name".into(), "".into());
    let optional = match kind {
        "ConfigMap" => "binaryData",
        "Secret" => {
            entries.insert("type".into(), value_at(node, "type")?);
            "stringData"
        }
        // A patch may have made it another kind. Go hashes where each of its nodes stands in which file, and its comments.
        _ => {
            return Err(Error::new(format!(
                "names of {kind} objects get no hash: only those of ConfigMaps and Secrets do"
            )));
        }
    };
    entries.insert("data".into(), value_at(node, "data")?);
    if let found @ Value::Object(_) = value_at(node, optional)? {
        entries.insert(optional.into(), found);
    }
    Ok(encoded(&golib::json::encode(&Value::Object(entries))))
}

/// Ten characters that spell no words.
fn encoded(text: &str) -> String {
    golib::hex::encode(&Sha256::digest(text.as_bytes())[..5])
        .chars()
        .map(|c| match c {
            '0' => 'g',
            '1' => 'h',
            '3' => 'k',
            'a' => 'm',
            'e' => 't',
            other => other,
        })
        .collect()
}

fn value_at(node: &Node, name: &str) -> Result<Value> {
    Ok(match fns::field(node, name) {
        None => "".into(),
        Some(value) if value.kind == Kind::Scalar => value.value.clone().into(),
        Some(value) => match golib::json::floats(value.decode_written()?) {
            // Go leaves a nil map for what is none.
            Value::Array(_) => Value::Null,
            other => other,
        },
    })
}
