//! Places in objects, and how JSON pointers, field paths of replacements and those of variables name them.

use super::maker::Maker;
use super::tree::Tree;

/// One step of a way into an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Field(String),
    Item(usize),
}

/// The way to a part of an object.
pub(super) type Place = Vec<Step>;

/// All places in a tree but the names of its type, of scalars and collections apart.
pub(super) fn all(tree: &Tree) -> (Vec<Place>, Vec<Place>) {
    let (mut scalars, mut collections) = (Vec::new(), Vec::new());
    visit(tree, &mut Vec::new(), &mut scalars, &mut collections);
    scalars.retain(|place| !is_of_type(place));
    collections.retain(|place| !place.is_empty());
    (scalars, collections)
}

fn is_of_type(place: &Place) -> bool {
    let fields: Vec<&str> = place
        .iter()
        .map(|step| match step {
            Step::Field(name) => name.as_str(),
            Step::Item(_) => "",
        })
        .collect();
    matches!(
        fields.as_slice(),
        ["apiVersion" | "kind"] | ["metadata", "name" | "namespace"]
    )
}

fn visit(tree: &Tree, at: &mut Place, scalars: &mut Vec<Place>, collections: &mut Vec<Place>) {
    match tree {
        Tree::Raw(_) | Tree::Text(_) => scalars.push(at.clone()),
        Tree::Map(entries) => {
            collections.push(at.clone());
            for (key, value) in entries {
                at.push(Step::Field(key.clone()));
                visit(value, at, scalars, collections);
                at.pop();
            }
        }
        Tree::List(items) => {
            collections.push(at.clone());
            for (index, item) in items.iter().enumerate() {
                at.push(Step::Item(index));
                visit(item, at, scalars, collections);
                at.pop();
            }
        }
    }
}

pub(super) fn find<'a>(tree: &'a Tree, place: &[Step]) -> Option<&'a Tree> {
    place
        .iter()
        .try_fold(tree, |tree, step| match (tree, step) {
            (Tree::Map(entries), Step::Field(name)) => entries
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value),
            (Tree::List(items), Step::Item(index)) => items.get(*index),
            _ => None,
        })
}

pub(super) fn find_mut<'a>(tree: &'a mut Tree, place: &[Step]) -> Option<&'a mut Tree> {
    place
        .iter()
        .try_fold(tree, |tree, step| match (tree, step) {
            (Tree::Map(entries), Step::Field(name)) => {
                let found = entries.iter_mut().find(|(key, _)| key == name);
                found.map(|(_, value)| value)
            }
            (Tree::List(items), Step::Item(index)) => items.get_mut(*index),
            _ => None,
        })
}

pub(super) fn remove(tree: &mut Tree, place: &[Step]) {
    let Some((last, way)) = place.split_last() else {
        return;
    };
    match (find_mut(tree, way), last) {
        (Some(Tree::Map(entries)), Step::Field(name)) => entries.retain(|(key, _)| key != name),
        (Some(Tree::List(items)), Step::Item(index)) if *index < items.len() => {
            items.remove(*index);
        }
        _ => {}
    }
}

/// As JSON patches name it.
pub(super) fn pointer(place: &[Step]) -> String {
    let parts = place.iter().map(|step| match step {
        Step::Field(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
        Step::Item(index) => format!("/{index}"),
    });
    parts.collect()
}

/// As variables name it.
pub(super) fn variable_path(place: &[Step]) -> String {
    let mut path = String::new();
    for step in place {
        match step {
            Step::Field(name) => {
                let dot = if path.is_empty() { "" } else { "." };
                path += &format!("{dot}{}", name.replace('.', "\\."));
            }
            Step::Item(index) => path += &format!("[{index}]"),
        }
    }
    path
}

/// As replacements name it; `*` and `[name=value]` may stand for items.
pub(super) fn field_path(
    maker: &mut Maker<'_>,
    tree: &Tree,
    place: &[Step],
    is_target: bool,
) -> String {
    let mut parts = Vec::new();
    let mut found = Some(tree);
    for step in place {
        let next = found.and_then(|tree| find(tree, std::slice::from_ref(step)));
        parts.push(match step {
            Step::Field(name) if name.contains(['.', '/']) => match maker.below(2) {
                0 => name.replace('.', "\\."),
                _ => format!("[{name}]"),
            },
            Step::Field(name) => name.clone(),
            Step::Item(_) if is_target && maker.chance(25) => "*".to_owned(),
            Step::Item(index) => match next.and_then(named) {
                Some((key, value)) if maker.chance(60) => format!("[{key}={value}]"),
                _ => index.to_string(),
            },
        });
        found = next;
    }
    parts.join(".")
}

/// The field that an item of a list is told by.
fn named(item: &Tree) -> Option<(&str, &str)> {
    let Tree::Map(entries) = item else {
        return None;
    };
    entries
        .iter()
        .find_map(|(key, value)| match (key.as_str(), value) {
            ("name" | "containerPort" | "port" | "kind", Tree::Raw(text) | Tree::Text(text)) => {
                let is_plain = text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
                (is_plain && !text.is_empty()).then_some((key.as_str(), text.as_str()))
            }
            _ => None,
        })
}
