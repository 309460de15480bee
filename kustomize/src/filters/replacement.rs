//! Copying one field's value into others (`filters/replacement`, kyaml's `PathMatcher`), also into the YAML or JSON that a field
//! holds as text.

use golib::yaml::node::{self, Kind, Node};

use crate::error::{Context as _, Error, Result};
use crate::fns::{self, field, is_null};
use crate::kustomization::{
    FieldOptions, Replacement, Selector as Fields, SourceSelector, TargetSelector,
};
use crate::loader::Build;
use crate::resid::ResId;
use crate::resmap::{ResMap, SelectorRegex};
use crate::resource::{Resource, all_ids, id_of, prev_ids};
use crate::selector::Selector;

const DEFAULT_PATH: &str = "metadata.name";

pub(crate) fn transform(
    map: &mut ResMap,
    replacements: &[Replacement],
    build: &Build<'_>,
) -> Result<()> {
    for replacement in replacements {
        let targets = match &replacement.targets {
            Some(targets) if replacement.source.is_some() || replacement.source_value.is_some() => {
                targets
            }
            _ => {
                return Err(Error::new(
                    "replacements must specify a source and at least one target",
                ));
            }
        };
        let source = source_of(map, replacement, build)?;
        for target in targets {
            let Some(target) = target else {
                return Err(Error::new("target must specify resources to select"));
            };
            apply(map, &source, target, build)?;
        }
    }
    Ok(())
}

/// Where what is copied is taken from.
enum Source {
    Value(Node),
    /// A field as it is when it is copied: what is copied into it, or made in it, is copied on.
    Field {
        /// The place of its object.
        object: usize,
        place: Place,
        /// The field's first value, for when the field is no longer there.
        first: Node,
    },
}

/// [`Source`], as the object that is copied into sees it.
#[derive(Clone, Copy)]
enum Value<'a> {
    Other(&'a Node),
    /// A field of the same object.
    Own(&'a [usize], &'a Node),
}

impl<'a> Value<'a> {
    fn read<'b>(self, target: &'b Node) -> &'b Node
    where
        'a: 'b,
    {
        match self {
            Self::Other(node) => node,
            Self::Own(place, first) => at(target, place).unwrap_or(first),
        }
    }
}

fn source_of(map: &ResMap, replacement: &Replacement, build: &Build<'_>) -> Result<Source> {
    let source = match (&replacement.source, &replacement.source_value) {
        (Some(_), Some(_)) => {
            return Err(Error::new(
                "value and resource selectors are mutually exclusive",
            ));
        }
        (None, Some(value)) => return Ok(Source::Value(Node::scalar(value))),
        (Some(source), None) => source,
        (None, None) => {
            return Err(Error::new(
                "replacements must specify a source and at least one target",
            ));
        }
    };
    build.work(2 * map.resources().len())?;
    let (object, node) = select_source(map, source, build)?;
    let path = if source.field_path.is_empty() {
        DEFAULT_PATH
    } else {
        &source.field_path
    };
    let parts = fns::split_path_smartly(path, '.')?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let place = fns::place_of(node, &parts).context("error looking up replacement source")?;
    let found = place
        .and_then(|place| at(node, &place).map(|found| (place, found)))
        .filter(|(_, found)| !fns::is_nil_or_empty(found));
    let Some((place, found)) = found else {
        return Err(Error::new(format!(
            "fieldPath `{path}` is missing for replacement source {}",
            source.id
        )));
    };
    match refined(source.options.as_ref(), found, build)? {
        Some(value) => Ok(Source::Value(value)),
        None => Ok(Source::Field {
            object,
            place,
            first: found.clone(),
        }),
    }
}

fn selector_text(source: &SourceSelector) -> String {
    let mut text = source.id.to_string();
    if !source.field_path.is_empty() {
        text = format!("{text}:{}", source.field_path);
    }
    if let Some(options) = &source.options
        && (!options.delimiter.is_empty() || options.create)
    {
        text = format!(
            "{text}:{}({}), create={}",
            options.delimiter, options.index, options.create
        );
    }
    text
}

fn select_source<'a>(
    map: &'a ResMap,
    source: &SourceSelector,
    build: &Build<'_>,
) -> Result<(usize, &'a Node)> {
    let mut found = None;
    for (object, resource) in map.resources().iter().enumerate() {
        let Some(node) = resource.node() else {
            continue;
        };
        let former = prev_ids(node, build).context("error getting node IDs")?;
        let mut ids = std::iter::once(id_of(node)).chain(former);
        if ids.any(|id| id.is_selected_by(&source.id)) {
            if found.is_some() {
                return Err(Error::new(format!(
                    "multiple matches for selector {}",
                    selector_text(source)
                )));
            }
            found = Some((object, node));
        }
    }
    found.ok_or_else(|| Error::new(format!("nothing selected by {}", selector_text(source))))
}

/// A part of a text, if one is asked for.
fn refined(options: Option<&FieldOptions>, node: &Node, build: &Build<'_>) -> Result<Option<Node>> {
    expect_scalar(options, node.kind == Kind::Scalar)?;
    let Some(options) = delimited(options) else {
        return Ok(None);
    };
    let text = fns::value_of(node);
    build.work(split_cost(text))?;
    let part = usize::try_from(options.index)
        .ok()
        .and_then(|index| text.split(&options.delimiter).nth(index));
    let Some(part) = part else {
        return Err(Error::new(format!(
            "options.index {} is out of bounds for value {text}",
            options.index
        )));
    };
    Ok(Some(Node {
        value: part.to_owned(),
        ..node.clone()
    }))
}

/// Steps of looking for a delimiter in a text.
fn split_cost(text: &str) -> usize {
    text.len() / 128
}

/// A text with one of its parts set: before the first for an index below zero, behind the last for one that is too large.
fn with_part(text: &str, options: &FieldOptions, part: &str) -> String {
    let delimiter = &options.delimiter;
    let Ok(index) = usize::try_from(options.index) else {
        return format!("{part}{delimiter}{text}");
    };
    let start = match index.checked_sub(1) {
        None => Some(0),
        Some(before) => text
            .match_indices(delimiter)
            .nth(before)
            .map(|(at, found)| at + found.len()),
    };
    let Some(start) = start else {
        return format!("{text}{delimiter}{part}");
    };
    let (head, old) = text.split_at(start);
    let tail = old.find(delimiter).map_or("", |end| &old[end..]);
    format!("{head}{part}{tail}")
}

/// Labels and annotations of a selector.
struct Marks {
    annotations: Result<Selector>,
    labels: Result<Selector>,
}

impl Marks {
    fn of(fields: &Fields) -> Self {
        Self {
            annotations: Selector::parse(&fields.annotation_selector),
            labels: Selector::parse(&fields.label_selector),
        }
    }

    fn fit(&self, resource: &Resource, build: &Build<'_>) -> Result<bool> {
        let annotations = self.annotations.as_ref().map_err(Clone::clone)?;
        let labels = self.labels.as_ref().map_err(Clone::clone)?;
        build.work(annotations.cost() + labels.cost())?;
        Ok(resource.matches_annotations(annotations) && resource.matches_labels(labels))
    }
}

/// What a target leaves out.
struct Reject<'a> {
    fields: &'a Fields,
    regex: SelectorRegex,
    marks: Marks,
}

fn apply(
    map: &mut ResMap,
    source: &Source,
    target: &TargetSelector,
    build: &Build<'_>,
) -> Result<()> {
    let Some(select) = &target.select else {
        return Err(Error::new("target must specify resources to select"));
    };
    let default = [DEFAULT_PATH.to_owned()];
    let paths = if target.field_paths.is_empty() {
        &default[..]
    } else {
        &target.field_paths
    };
    let paths = paths
        .iter()
        .map(|path| FieldPath::of(path))
        .collect::<Result<Vec<_>>>()?;
    let compile = |fields: &Fields| {
        SelectorRegex::new(fields, build).context("error creating target selector")
    };
    let regex = compile(select)?;
    let rejects = target
        .reject
        .iter()
        .map(|fields| {
            // Go falls over one that is null.
            let fields = fields
                .as_ref()
                .ok_or_else(|| Error::new("reject must specify resources to select"))?;
            Ok(Reject {
                fields,
                regex: compile(fields)?,
                marks: Marks::of(fields),
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let marks = Marks::of(select);
    let fits = |regex: &SelectorRegex, ids: &[ResId]| {
        for id in ids {
            if regex.matches_gvk(&id.gvk, build)?
                && regex.matches_name(&id.name, build)?
                && regex.matches_namespace(&id.namespace, build)?
            {
                return Ok(true);
            }
        }
        Ok::<_, Error>(false)
    };
    for place in 0..map.resources().len() {
        build.work(2 + rejects.len())?;
        let resource = &map.resources()[place];
        let Some(node) = resource.node() else {
            continue;
        };
        let ids = all_ids(node, build)?;
        if !marks.fit(resource, build)? {
            continue;
        }
        let mut is_rejected = false;
        for Reject {
            fields,
            regex,
            marks,
        } in &rejects
        {
            let has_marks =
                !fields.annotation_selector.is_empty() || !fields.label_selector.is_empty();
            regex.count(&ids, build)?;
            is_rejected |= has_marks && marks.fit(resource, build)?
                || !fields.id.is_empty() && fits(regex, &ids)?;
        }
        regex.count(&ids, build)?;
        if is_rejected || !fits(&regex, &ids)? {
            continue;
        }
        let Some(node) = map.resources_mut()[place].node_mut() else {
            continue;
        };
        let mut node = std::mem::replace(node, Node::null());
        let value = match source {
            Source::Value(value) => Value::Other(value),
            Source::Field {
                object,
                place: field,
                first,
            } if *object == place => Value::Own(field, first),
            Source::Field {
                object,
                place: field,
                first,
            } => {
                let object = map.resources().get(*object).and_then(Resource::node);
                Value::Other(object.and_then(|object| at(object, field)).unwrap_or(first))
            }
        };
        let copied = copy_value(&mut node, value, &paths, target.options.as_ref(), build);
        map.resources_mut()[place].set_node(node);
        copied?;
    }
    Ok(())
}

/// A path in its parts.
struct FieldPath<'a> {
    text: &'a str,
    parts: Vec<String>,
}

impl<'a> FieldPath<'a> {
    fn of(text: &'a str) -> Result<Self> {
        let parts = fns::split_path_smartly(text, '.')?;
        Ok(Self { text, parts })
    }
}

fn copy_value(
    target: &mut Node,
    value: Value<'_>,
    paths: &[FieldPath<'_>],
    options: Option<&FieldOptions>,
    build: &Build<'_>,
) -> Result<()> {
    for FieldPath { text, parts } in paths {
        let kind = value.read(target).kind;
        let create = options.filter(|options| options.create).map(|_| kind);
        build.work(4 * parts.len())?;
        match set_in_text(target, value, parts, create, build) {
            Ok(()) => continue,
            Err(error) if error.is_limit() => return Err(error),
            Err(_) => {}
        }
        let problem = if create.is_some() {
            format!(
                "unable to find or create field {} in replacement target",
                golib::strconv::quote(text)
            )
        } else {
            format!(
                "unable to find field {} in replacement target",
                golib::strconv::quote(text)
            )
        };
        let mut matcher = Matcher::new(create, build);
        let found = matcher.find(target, parts).context(&problem)?.places;
        if found.is_empty() && matcher.ignored == 0 {
            return Err(Error::new(problem));
        }
        if !matcher.ignores_scalars_only {
            expect_scalar(options, false)?;
        }
        for place in found {
            let value = value.read(target);
            fns::expect_depth(place.len() + value.depth())?;
            build.grow(value)?;
            let mut value = value.clone();
            // A copy is a value of its own.
            fns::unshare(&mut value);
            if let Some(node) = at_mut(target, &place) {
                set_value(options, node, value, build)?;
            }
        }
    }
    Ok(())
}

fn delimited(options: Option<&FieldOptions>) -> Option<&FieldOptions> {
    options.filter(|options| !options.delimiter.is_empty())
}

/// A part of something that is no text cannot be set.
fn expect_scalar(options: Option<&FieldOptions>, is_scalar: bool) -> Result<()> {
    if delimited(options).is_some() && !is_scalar {
        return Err(Error::new(
            "delimiter option can only be used with scalar nodes",
        ));
    }
    Ok(())
}

fn set_value(
    options: Option<&FieldOptions>,
    target: &mut Node,
    mut value: Node,
    build: &Build<'_>,
) -> Result<()> {
    expect_scalar(options, target.kind == Kind::Scalar)?;
    if let Some(options) = delimited(options) {
        build.work(split_cost(&target.value))?;
        value.value = with_part(&target.value, options, fns::value_of(&value));
    }
    // A value that is put into itself doubles each time.
    build.grow_by(value.value.len())?;
    replace(target, value);
    Ok(())
}

/// A scalar takes over the text alone.
fn replace(target: &mut Node, value: Node) {
    if target.kind == Kind::Scalar {
        target.value = value.value;
    } else {
        *target = value;
    }
}

/// The way to a node: places in the content of each collection.
type Place = Vec<usize>;

fn at<'a>(node: &'a Node, place: &[usize]) -> Option<&'a Node> {
    place
        .iter()
        .try_fold(node, |node, &index| node.content.get(index))
}

fn at_mut<'a>(node: &'a mut Node, place: &[usize]) -> Option<&'a mut Node> {
    place
        .iter()
        .try_fold(node, |node, &index| node.content.get_mut(index))
}

/// What a search has found so far in one node.
#[derive(Default)]
struct Found {
    /// The way to where it is.
    way: Place,
    places: Vec<Place>,
    /// What the places take.
    bytes: usize,
}

struct Matcher<'a> {
    create: Option<Kind>,
    /// Bytes of all places that are held: a text in a text is searched while what holds it is.
    held: usize,
    /// Matches inside of texts, which setting checks and leaves as they are.
    ignored: usize,
    ignores_scalars_only: bool,
    build: &'a Build<'a>,
}

impl<'a> Matcher<'a> {
    fn new(create: Option<Kind>, build: &'a Build<'_>) -> Self {
        Self {
            create,
            held: 0,
            ignored: 0,
            ignores_scalars_only: true,
            build,
        }
    }

    fn find(&mut self, node: &mut Node, path: &[String]) -> Result<Found> {
        let mut found = Found::default();
        self.walk(node, path, &mut found)?;
        Ok(found)
    }

    /// What is found is copied once, where it is found: there may be many times more of it than there are nodes.
    fn add(&mut self, found: &mut Found) -> Result<()> {
        let bytes = 2 * size_of::<Place>() + size_of_val(&*found.way);
        self.build.expect_room(self.held.saturating_add(bytes))?;
        self.build.work(found.way.len() / 128)?;
        self.held += bytes;
        found.bytes += bytes;
        found.places.push(found.way.clone());
        Ok(())
    }

    fn walk(&mut self, node: &mut Node, path: &[String], found: &mut Found) -> Result<()> {
        self.build.work(1 + node.content.len() / 16)?;
        let Some((first, rest)) = path.split_first() else {
            return self.add(found);
        };
        if fns::is_index_number(first) {
            return self.index(node, first, rest, found);
        }
        if fns::is_list_index(first) {
            return self.elements(node, first, rest, true, found);
        }
        if first == "*" {
            fns::expect_kind(node, Kind::Sequence)?;
            for (index, element) in node.content.iter_mut().enumerate() {
                found.way.push(index);
                self.walk(element, rest, found)?;
                found.way.pop();
            }
            return Ok(());
        }
        self.field(node, first, rest, found)
    }

    fn made(&self, next: Option<&String>, kind: Kind) -> Node {
        fns::untagged(fns::path_part_kind(next.map_or("", |next| next), kind))
    }

    fn field(
        &mut self,
        node: &mut Node,
        name: &str,
        rest: &[String],
        found: &mut Found,
    ) -> Result<()> {
        if name.is_empty() {
            return self.itself(node, rest, found);
        }
        if fns::get(node, name)?.is_none() {
            let Some(kind) = self.create else {
                return Ok(());
            };
            let mut made = self.made(rest.first(), kind);
            if is_null(node) {
                // A value that is put into null is not written.
                return self.inside_unwritten(&mut made, rest);
            }
            fns::set_field(node, name, Some(made))?;
        }
        let Some(index) = fns::position(node, name) else {
            return Ok(());
        };
        found.way.push(index);
        self.inside(&mut node.content[index], rest, found)?;
        found.way.pop();
        Ok(())
    }

    /// A part without a name is the node itself where that is an empty scalar.
    fn itself(&mut self, node: &mut Node, rest: &[String], found: &mut Found) -> Result<()> {
        fns::expect_kind(node, Kind::Scalar)?;
        if !is_null(node) && node.value.is_empty() {
            return self.inside(node, rest, found);
        }
        let Some(kind) = self.create else {
            return Ok(());
        };
        let mut made = Node {
            style: node.style,
            ..self.made(rest.first(), kind)
        };
        // The node is made like what is then changed.
        node.clone_from(&made);
        self.inside_unwritten(&mut made, rest)
    }

    /// As [`Self::inside`], in a node that is in no object.
    fn inside_unwritten(&mut self, made: &mut Node, rest: &[String]) -> Result<()> {
        let mut found = Found::default();
        self.inside(made, rest, &mut found)?;
        self.ignore(made, &found);
        Ok(())
    }

    /// The rest of a path, from the field that its first part names.
    fn inside(&mut self, node: &mut Node, rest: &[String], found: &mut Found) -> Result<()> {
        let Some(next) = rest.first().filter(|_| node.kind == Kind::Scalar) else {
            return self.walk(node, rest, found);
        };
        let Some(mut data) = parse(&node.value, self.build)? else {
            let expected = if next.is_empty() {
                "ScalarNode"
            } else if fns::path_part_kind(next, Kind::Mapping) == Kind::Sequence || next == "*" {
                "SequenceNode"
            } else {
                "MappingNode"
            };
            return Err(Error::new(format!(
                "wrong node kind: expected {expected} but got : node contents:\nnull\n"
            )));
        };
        let inner = self.find(&mut data, rest)?;
        self.ignore(&data, &inner);
        Ok(())
    }

    fn ignore(&mut self, node: &Node, found: &Found) {
        self.held = self.held.saturating_sub(found.bytes);
        self.ignored += found.places.len();
        // An alias is a kind of its own in Go, whatever it stands for.
        let mut matches = found.places.iter().filter_map(|place| at(node, place));
        self.ignores_scalars_only &=
            matches.all(|node| node.kind == Kind::Scalar && !node.was_alias);
    }

    fn index(
        &mut self,
        node: &mut Node,
        first: &str,
        rest: &[String],
        found: &mut Found,
    ) -> Result<()> {
        let index = usize::try_from(golib::strconv::atoi(first).unwrap_or(0)).unwrap_or(0);
        fns::expect_kind(node, Kind::Sequence)?;
        if let Some(kind) = self.create
            && node.content.len() == index
        {
            let made = self.made(rest.first(), kind);
            node.content.push(made);
        }
        let length = node.content.len();
        let Some(element) = node.content.get_mut(index) else {
            return Err(Error::new(format!(
                "index {index} specified but only {length} elements found"
            )));
        };
        found.way.push(index);
        self.walk(element, rest, found)?;
        found.way.pop();
        Ok(())
    }

    fn elements(
        &mut self,
        node: &mut Node,
        first: &str,
        rest: &[String],
        may_create: bool,
        found: &mut Found,
    ) -> Result<()> {
        let (name, pattern) = fns::split_index_name_value(first)?;
        fns::expect_kind(node, Kind::Sequence)?;
        if node.content.is_empty() && !(may_create && self.create.is_some()) {
            return Ok(());
        }
        let regex = match self.build.compile(pattern) {
            Err(error) if error.is_limit() => return Err(error),
            regex => regex,
        };
        let (ignored, before) = (self.ignored, found.places.len());
        for index in 0..node.content.len() {
            let regex = regex.as_ref().map_err(Clone::clone)?;
            let element = &mut node.content[index];
            let own = if name.is_empty() {
                Some(&*element)
            } else {
                field(element, name)
            };
            let Some(own) = own else { continue };
            let text = own.to_yaml();
            self.build.work(1 + text.len() / 1024)?;
            if !self.build.matches(regex, text.trim())? {
                continue;
            }
            found.way.push(index);
            if name.is_empty() {
                self.add(found)?;
            } else {
                self.walk(element, rest, found)?;
            }
            found.way.pop();
        }
        // Elements found inside of a text count as well.
        let is_found = found.places.len() > before || self.ignored > ignored;
        if is_found || self.create.is_none() {
            return Ok(());
        }
        if !may_create {
            // Go would append for ever.
            return Err(Error::new(format!(
                "an element made for '{first}' does not match it"
            )));
        }
        let made = if name.is_empty() {
            Node::scalar(pattern)
        } else {
            let mut made = Node::collection(Kind::Mapping);
            made.content = vec![Node::scalar(name), Node::scalar(pattern)];
            made
        };
        node.content.push(made);
        self.elements(node, first, rest, false, found)
    }
}

/// The YAML that a field holds as text. It is read again for each path that leads into it.
fn parse(text: &str, build: &Build<'_>) -> Result<Option<Node>> {
    build.work(text.len() / 3)?;
    Ok(node::parse(text.as_bytes(), &mut build.document())?)
}

/// `setValueInStructuredData`: into the YAML or JSON that a field on the way holds as text.
fn set_in_text(
    target: &mut Node,
    value: Value<'_>,
    path: &[String],
    create: Option<Kind>,
    build: &Build<'_>,
) -> Result<()> {
    let nothing = || Error::new("no structured data found in path");
    if path.len() < 2 {
        return Err(Error::new("not a structured data path"));
    }
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    let mut found = None;
    for length in 1..path.len() {
        build.work(length / 8)?;
        let Ok(Some(node)) = fns::lookup(target, &parts[..length]) else {
            continue;
        };
        if node.kind != Kind::Scalar {
            continue;
        }
        match parse(&node.value, build) {
            Ok(parsed) => {
                found = Some((length, parsed));
                break;
            }
            Err(error) if error.is_limit() => return Err(error),
            Err(_) => {}
        }
    }
    let (length, parsed) = found.ok_or_else(nothing)?;
    let mut data = parsed.ok_or_else(nothing)?;
    let mut matcher = Matcher::new(create, build);
    let places = matcher.find(&mut data, &path[length..])?.places;
    if places.is_empty() && matcher.ignored == 0 {
        return Err(Error::new("unable to find field in structured data"));
    }
    for place in places {
        let value = value.read(target);
        build.grow(value)?;
        fns::expect_depth(place.len() + value.depth())?;
        if let Some(node) = at_mut(&mut data, &place) {
            replace(node, value.clone());
        }
    }
    let Some(scalar) = fns::lookup_mut(target, &parts[..length])? else {
        return Err(nothing());
    };
    scalar.value = written(&data, &scalar.value)?;
    build.work(scalar.value.len() / 6)?;
    Ok(())
}

fn written(data: &Node, original: &str) -> Result<String> {
    if !original.trim_start().starts_with(['{', '[']) {
        return Ok(data.to_yaml().trim().to_owned());
    }
    let value = data.decode_written()?;
    Ok(if original.contains('\n') && original.contains("  ") {
        golib::json::encode_indent(&value, "", "  ")
    } else {
        golib::json::encode(&value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `setFieldValue` (`api/filters/replacement/replacement.go`) splits, sets the part and joins.
    #[test]
    fn a_part_of_a_text_is_set_where_it_stands() {
        let with_part = |text: &str, index: i64| {
            let options = FieldOptions {
                delimiter: "::".to_owned(),
                index: index.try_into().unwrap(),
                ..FieldOptions::default()
            };
            with_part(text, &options, "x")
        };
        assert_eq!(with_part("a::b::c", 0), "x::b::c");
        assert_eq!(with_part("a::b::c", 1), "a::x::c");
        assert_eq!(with_part("a::b::c", 2), "a::b::x");
        assert_eq!(with_part("a::b::c", 3), "a::b::c::x");
        assert_eq!(with_part("a::b::c", 9), "a::b::c::x");
        assert_eq!(with_part("a::b::c", -1), "x::a::b::c");
        assert_eq!(with_part("", 0), "x");
        assert_eq!(with_part("a:::b", 1), "a::x");
    }
}
