//! Finding the field that a spec names, through lists, and making it where it is missing (`filters/fieldspec`).

use golib::yaml::node::{Kind, Node, tag};

use crate::config::FieldSpec;
use crate::error::{Context as _, Error, Result};
use crate::fns::{self, is_null};
use crate::resid::parse_group_version;
use crate::resource::id_of;

/// The node to create where a field is missing.
#[derive(Clone, Copy)]
pub(crate) struct Create {
    pub(crate) kind: Kind,
    pub(crate) tag: &'static str,
}

pub(crate) type Setter<'a> = &'a mut dyn FnMut(&mut Node) -> Result<()>;

/// Sets the field of a spec in an object that the spec is for.
pub(crate) fn apply(
    spec: &FieldSpec,
    create: Option<Create>,
    object: &mut Node,
    set: Setter<'_>,
) -> Result<()> {
    if !is_for(spec, object) {
        return Ok(());
    }
    apply_anyway(&spec.path, spec.create, create, object, set)
}

/// As [`apply`], whatever the object is.
pub(crate) fn apply_anyway(
    path: &str,
    may_create: bool,
    create: Option<Create>,
    object: &mut Node,
    set: Setter<'_>,
) -> Result<()> {
    let parts = fns::split_path(path, '/')?;
    let mut walk = Walk {
        create: create.filter(|_| may_create),
        set,
    };
    walk.step(object, &parts).map_err(|error| {
        error.context(format!(
            "considering field '{path}' of object {}",
            id_of(object)
        ))
    })
}

pub(crate) fn apply_all(
    specs: &[FieldSpec],
    create: Option<Create>,
    object: &mut Node,
    set: Setter<'_>,
) -> Result<()> {
    specs
        .iter()
        .try_for_each(|spec| apply(spec, create, object, set))
}

fn is_for(spec: &FieldSpec, object: &Node) -> bool {
    let text = |name| fns::field(object, name).map_or("", |value| &*value.value);
    let (group, version) = parse_group_version(text("apiVersion"));
    let fits = |expected: &str, own: &str| expected.is_empty() || expected == own;
    fits(&spec.gvk.kind, text("kind"))
        && fits(&spec.gvk.group, group)
        && fits(&spec.gvk.version, version)
}

struct Walk<'a> {
    create: Option<Create>,
    set: Setter<'a>,
}

impl Walk<'_> {
    fn step(&mut self, node: &mut Node, path: &[String]) -> Result<()> {
        if path.is_empty() {
            return (self.set)(node);
        }
        if is_null(node) {
            return Ok(());
        }
        match node.kind {
            Kind::Sequence => {
                for element in &mut node.content {
                    self.step(element, path).with_context(|| {
                        format!("visit traversal on path: [{}]", path.join(" "))
                    })?;
                }
                Ok(())
            }
            Kind::Mapping => self.field(node, path),
            Kind::Scalar => Err(Error::new("expected sequence or mapping node")),
        }
    }

    fn field(&mut self, node: &mut Node, path: &[String]) -> Result<()> {
        let Some((first, rest)) = path.split_first() else {
            return Ok(());
        };
        let (name, is_list) = match first.strip_suffix("[]") {
            Some(name) => (name, true),
            None => (first.as_str(), false),
        };
        if name.is_empty() {
            return Err(Error::new("cannot set or create an empty field name"));
        }
        let create = self.create.filter(|_| !is_list);
        let (found, kind, new_tag) = match create {
            None => (
                fns::lookup_mut(node, &[name]),
                is_list.then_some(Kind::Sequence),
                "",
            ),
            Some(create) if rest.is_empty() => (
                fns::lookup_create(node, &[name], create.kind),
                Some(create.kind),
                create.tag,
            ),
            Some(_) => (
                fns::lookup_create(node, &[name], Kind::Mapping),
                Some(Kind::Mapping),
                tag::MAP,
            ),
        };
        let Some(found) = found.with_context(|| format!("fieldName: {name}"))? else {
            return Ok(());
        };
        if let Some(kind) = kind
            && is_null(found)
        {
            found.kind = kind;
            found.tag = new_tag.into();
        }
        self.step(found, rest)
    }
}
