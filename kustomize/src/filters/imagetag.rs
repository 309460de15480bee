//! Names, tags and digests of images (`filters/imagetag`, `internal/image`).

use std::rc::Rc;

use golib::regexp::Regexp;
use golib::yaml::node::{Kind, Node};

use crate::config::FieldSpec;
use crate::error::Result;
use crate::filters::fieldspec;
use crate::fns;
use crate::kustomization::Image;
use crate::loader::Build;

/// An image to be named otherwise.
pub(crate) struct Updater<'a> {
    image: &'a Image,
    /// An error where the name is no expression, over which Go falls at the first image.
    pattern: Result<Rc<Regexp>>,
}

impl<'a> Updater<'a> {
    pub(crate) fn new(image: &'a Image, build: &Build<'_>) -> Self {
        let pattern = format!(
            "^{}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$",
            image.name
        );
        Self {
            image,
            pattern: build.compile(&pattern).map_err(|error| {
                error.context(format!(
                    "the name of image {:?} is no expression",
                    image.name
                ))
            }),
        }
    }

    /// Updates containers wherever they are, and the given fields.
    pub(crate) fn apply(
        &self,
        object: &mut Node,
        specs: &[FieldSpec],
        build: &Build<'_>,
    ) -> Result<()> {
        let kind = fns::field(object, "kind").map_or("", |kind| &kind.value);
        if kind == "CustomResourceDefinition" {
            return Ok(());
        }
        build.work(fns::walk_cost(object))?;
        self.walk(object, build)?;
        fieldspec::apply_all(specs, None, object, &mut |node| self.update(node, build))
    }

    fn walk(&self, node: &mut Node, build: &Build<'_>) -> Result<()> {
        match node.kind {
            Kind::Mapping => {
                for at in (1..node.content.len()).step_by(2) {
                    self.walk(&mut node.content[at], build)?;
                    let is_containers = matches!(
                        &*node.content[at - 1].value,
                        "containers" | "initContainers"
                    );
                    let value = &mut node.content[at];
                    if is_containers && value.kind == Kind::Sequence {
                        for container in &mut value.content {
                            if let Some(image) = fns::get_mut(container, "image")? {
                                self.update(image, build)?;
                            }
                        }
                    }
                }
                Ok(())
            }
            Kind::Sequence => node
                .content
                .iter_mut()
                .try_for_each(|item| self.walk(item, build)),
            Kind::Scalar => Ok(()),
        }
    }

    fn update(&self, node: &mut Node, build: &Build<'_>) -> Result<()> {
        fns::expect_kind(node, Kind::Scalar)?;
        let pattern = self.pattern.as_ref().map_err(Clone::clone)?;
        build.work(1)?;
        if !build.matches(pattern, &node.value)? {
            return Ok(());
        }
        let (mut name, mut tag, mut digest) = split(&node.value);
        let image = self.image;
        if !image.new_name.is_empty() {
            name = &image.new_name;
        }
        let suffixed;
        if !image.new_tag.is_empty() {
            tag = &image.new_tag;
            digest = &image.digest;
        } else if !image.digest.is_empty() {
            tag = "";
            digest = &image.digest;
        } else if !image.tag_suffix.is_empty() {
            suffixed = format!("{tag}{}", image.tag_suffix);
            tag = &suffixed;
            digest = "";
        }
        let mut text = name.to_owned();
        if !tag.is_empty() {
            text = format!("{text}:{tag}");
        }
        if !digest.is_empty() {
            text = format!("{text}@{digest}");
        }
        build.grow_by(text.len())?;
        fns::set_scalar(node, Node::scalar(text))
    }
}

/// Name, tag and digest.
fn split(image: &str) -> (&str, &str, &str) {
    let from = image.find('/').filter(|&at| at > 0).unwrap_or(0);
    let digest = image[from..].find('@').map(|at| at + from);
    let tag = image[from..].find(':').map(|at| at + from);
    match (tag, digest) {
        (None, None) => (image, "", ""),
        (tag, Some(at)) if tag.is_none_or(|tag| at < tag) => (&image[..at], "", &image[at + 1..]),
        (Some(at), Some(digest)) => (&image[..at], &image[at + 1..digest], &image[digest + 1..]),
        (Some(at), None) => (&image[..at], &image[at + 1..], ""),
        (None, Some(_)) => (image, "", ""),
    }
}
