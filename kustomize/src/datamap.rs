//! What a ConfigMap or Secret holds, as YAML nodes: text as it is, all else in base64. Mirrors kyaml's `datamap.go`.

use std::collections::BTreeMap;

use golib::yaml::node::{Kind, Node, ScalarStyle, tag};

use crate::error::Result;
use crate::fns;

/// Entries of a ConfigMap, those that are no text apart unless all belong into one field.
pub(crate) fn load_config_map_data(
    node: &mut Node,
    data: &BTreeMap<String, String>,
    only: Option<&'static str>,
) -> Result<()> {
    let entries = data.iter().map(|(key, text)| {
        let (name, value) = config_map_value(text.as_bytes());
        (only.unwrap_or(name), key.clone(), value)
    });
    add_entries(node, entries)
}

/// Puts values under keys that are not there yet, each into the field that it names.
pub(crate) fn add_entries(
    node: &mut Node,
    entries: impl Iterator<Item = (&'static str, String, Node)>,
) -> Result<()> {
    for (name, key, mut value) in entries {
        if let Some(map) = fns::lookup_create(node, &[name], Kind::Mapping)? {
            fns::quote_if_needed(&mut value);
            map.content.push(Node::scalar(key));
            map.content.push(value);
        }
    }
    Ok(())
}

pub(crate) fn config_map_value(value: &[u8]) -> (&'static str, Node) {
    match std::str::from_utf8(value) {
        Ok(text) => ("data", text_value(text.to_owned())),
        Err(_) => ("binaryData", text_value(encode_base64(value))),
    }
}

pub(crate) fn text_value(text: String) -> Node {
    let mut node = Node::tagged(text, tag::STR);
    if node.value.contains('\n') {
        node.style.scalar = ScalarStyle::Literal;
    }
    node
}

/// In lines of 70 where it takes more than one.
pub(crate) fn encode_base64(value: &[u8]) -> String {
    const LINE: usize = 70;
    let text = golib::base64::encode(value);
    if text.len() / LINE == 0 {
        return text;
    }
    let mut out = String::with_capacity(text.len() + text.len() / LINE + 1);
    for line in text.as_bytes().chunks(LINE) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out
}
