//! What Helm refuses in `Chart.yaml`, and the cleaning of its texts that goes with the check.

use std::collections::BTreeSet;

use super::{Dependency, Draft, Maintainer, Metadata};

/// Chart metadata Helm does not accept. The text is Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValidationError {
    /// A field that must be there is empty.
    #[error("validation: chart.metadata.{0} is required")]
    Required(&'static str),
    /// The name is `.` or `..`.
    #[error("validation: chart.metadata.name {} is not allowed", golib::strconv::quote(.0.as_bytes()))]
    NameNotAllowed(String),
    /// The name holds a path separator.
    #[error("validation: chart.metadata.name {} is invalid", golib::strconv::quote(.0.as_bytes()))]
    InvalidName(String),
    /// The version is no semantic version.
    #[error("validation: chart.metadata.version {} is invalid", golib::strconv::quote(.0.as_bytes()))]
    InvalidVersion(String),
    /// The type is unknown.
    #[error("validation: chart.metadata.type must be application or library")]
    UnknownType,
    /// A list has a null element.
    #[error("validation: {0} must not contain empty or null nodes")]
    NullElement(&'static str),
    /// An alias with characters other than letters, digits, `_` and `-`.
    #[error(
        "validation: dependency {} has disallowed characters in the alias",
        golib::strconv::quote(.0.as_bytes())
    )]
    InvalidAlias(String),
    /// Two dependencies go by one name.
    #[error(
        "validation: more than one dependency with name or alias {}",
        golib::strconv::quote(.0.as_bytes())
    )]
    DuplicateDependency(String),
}

impl Draft {
    /// Cleans and checks everything in Helm's order.
    ///
    /// ```
    /// use chart::loader::read_chart_yaml;
    ///
    /// let metadata = read_chart_yaml(b"apiVersion: v2\nname: web\nversion: 1.0.0\n")?.validate()?;
    /// assert_eq!(metadata.name, "web");
    /// let nameless = read_chart_yaml(b"apiVersion: v2\nversion: 1.0.0\n")?;
    /// assert!(nameless.validate().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The first thing Helm would refuse.
    pub fn validate(mut self) -> Result<Metadata, ValidationError> {
        let md = &mut self.metadata;
        for text in [
            &mut md.name,
            &mut md.description,
            &mut md.home,
            &mut md.icon,
            &mut md.condition,
            &mut md.tags,
            &mut md.app_version,
            &mut md.kube_version,
        ] {
            sanitize(text);
        }
        md.sources
            .iter_mut()
            .chain(&mut md.keywords)
            .for_each(sanitize);

        if md.api_version.is_empty() {
            return Err(ValidationError::Required("apiVersion"));
        }
        match md.name.as_str() {
            "" => return Err(ValidationError::Required("name")),
            "." | ".." => return Err(ValidationError::NameNotAllowed(md.name.clone())),
            name if name.contains('/') => {
                return Err(ValidationError::InvalidName(md.name.clone()));
            }
            _ => {}
        }
        if md.version.is_empty() {
            return Err(ValidationError::Required("version"));
        }
        if golib::semver::Version::parse(&md.version).is_err() {
            return Err(ValidationError::InvalidVersion(md.version.clone()));
        }
        if !matches!(md.chart_type.as_str(), "" | "application" | "library") {
            return Err(ValidationError::UnknownType);
        }
        for maintainer in &mut self.maintainers {
            let refused = ValidationError::NullElement("maintainers");
            maintainer.as_mut().ok_or(refused)?.sanitize();
        }
        let mut names = BTreeSet::new();
        for dependency in self.dependencies.iter_mut().flatten() {
            let refused = ValidationError::NullElement("dependencies");
            let dependency = dependency.as_mut().ok_or(refused)?;
            dependency.validate()?;
            let key = dependency.effective_name().to_owned();
            if !names.insert(key.clone()) {
                return Err(ValidationError::DuplicateDependency(key));
            }
        }
        Ok(self.finish())
    }
}

impl Maintainer {
    fn sanitize(&mut self) {
        [&mut self.name, &mut self.email, &mut self.url]
            .into_iter()
            .for_each(sanitize);
    }
}

impl Dependency {
    /// The alias, or the name where there is none: the key of its values.
    ///
    /// ```
    /// let mut dependency = chart::Dependency { name: "postgresql".to_owned(), ..Default::default() };
    /// assert_eq!(dependency.effective_name(), "postgresql");
    /// dependency.alias = "db".to_owned();
    /// assert_eq!(dependency.effective_name(), "db");
    /// ```
    pub fn effective_name(&self) -> &str {
        if self.alias.is_empty() {
            &self.name
        } else {
            &self.alias
        }
    }

    fn validate(&mut self) -> Result<(), ValidationError> {
        for text in [
            &mut self.name,
            &mut self.version,
            &mut self.repository,
            &mut self.condition,
        ] {
            sanitize(text);
        }
        self.tags.iter_mut().for_each(sanitize);
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if !self.alias.chars().all(allowed) {
            return Err(ValidationError::InvalidAlias(self.name.clone()));
        }
        Ok(())
    }
}

/// White space becomes a blank, what cannot be printed goes.
fn sanitize(text: &mut String) {
    let clean = |c: char| match c {
        c if is_space(c) => Some(' '),
        c if golib::strconv::is_print(c) => Some(c),
        _ => None,
    };
    if text.chars().any(|c| clean(c) != Some(c)) {
        *text = text.chars().filter_map(clean).collect();
    }
}

/// Go's `unicode.IsSpace`.
fn is_space(c: char) -> bool {
    // Rust's white space is the same set (Unicode White_Space).
    c.is_whitespace()
}
