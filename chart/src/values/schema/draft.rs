//! The drafts of JSON Schema: what differs between them, and their own schemas.

use std::sync::LazyLock;

use referencing::meta;
use serde_json::{Value, json};

/// A draft Helm's library knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Draft {
    Draft4,
    Draft6,
    Draft7,
    Draft2019,
    #[default]
    Draft2020,
}

impl Draft {
    pub(super) const LATEST: Self = Self::Draft2020;
    pub(super) const ALL: [Self; 5] = [
        Self::Draft4,
        Self::Draft6,
        Self::Draft7,
        Self::Draft2019,
        Self::Draft2020,
    ];

    /// URL of the draft's own schema.
    pub(super) const fn url(self) -> &'static str {
        match self {
            Self::Draft4 => "http://json-schema.org/draft-04/schema",
            Self::Draft6 => "http://json-schema.org/draft-06/schema",
            Self::Draft7 => "http://json-schema.org/draft-07/schema",
            Self::Draft2019 => "https://json-schema.org/draft/2019-09/schema",
            Self::Draft2020 => "https://json-schema.org/draft/2020-12/schema",
        }
    }

    /// The draft a `$schema` names.
    pub(super) fn from_url(url: &str) -> Option<Self> {
        let url = match url.split_once('#') {
            Some((url, "")) => url,
            Some(_) => return None,
            None => url,
        };
        let path = url
            .strip_prefix("http://")
            .or_else(|| url.strip_prefix("https://"))?;
        match path {
            "json-schema.org/schema" => Some(Self::LATEST),
            path => Self::ALL.into_iter().find(|draft| {
                draft
                    .url()
                    .split_once("://")
                    .is_some_and(|(_, own)| own == path)
            }),
        }
    }

    /// The keyword that names a schema.
    pub(super) const fn id_keyword(self) -> &'static str {
        match self {
            Self::Draft4 => "id",
            _ => "$id",
        }
    }

    /// The name a schema object gives itself, without fragment; empty if none.
    pub(super) fn id(self, schema: &serde_json::Map<String, Value>) -> &str {
        if self < Self::Draft2019 && schema.contains_key("$ref") {
            return "";
        }
        let id = schema
            .get(self.id_keyword())
            .and_then(Value::as_str)
            .unwrap_or_default();
        id.split('#').next().unwrap_or_default()
    }

    /// Where schemas lie in a schema.
    pub(super) fn positions(self) -> impl Iterator<Item = (&'static str, Position)> {
        use Position::{Each, Itself};
        const POSITIONS: &[(Draft, &str, Position)] = &[
            (Draft::Draft4, "definitions", Each),
            (Draft::Draft4, "not", Itself),
            (Draft::Draft4, "allOf", Each),
            (Draft::Draft4, "anyOf", Each),
            (Draft::Draft4, "oneOf", Each),
            (Draft::Draft4, "properties", Each),
            (Draft::Draft4, "additionalProperties", Itself),
            (Draft::Draft4, "patternProperties", Each),
            (Draft::Draft4, "items", Position::Both),
            (Draft::Draft4, "additionalItems", Itself),
            (Draft::Draft4, "dependencies", Each),
            (Draft::Draft6, "propertyNames", Itself),
            (Draft::Draft6, "contains", Itself),
            (Draft::Draft7, "if", Itself),
            (Draft::Draft7, "then", Itself),
            (Draft::Draft7, "else", Itself),
            (Draft::Draft2019, "$defs", Each),
            (Draft::Draft2019, "dependentSchemas", Each),
            (Draft::Draft2019, "unevaluatedProperties", Itself),
            (Draft::Draft2019, "unevaluatedItems", Itself),
            (Draft::Draft2019, "contentSchema", Itself),
            (Draft::Draft2020, "prefixItems", Each),
        ];
        POSITIONS
            .iter()
            .filter(move |(since, ..)| *since <= self)
            .map(|(_, keyword, position)| (*keyword, *position))
    }
}

/// The part of a keyword's value that is a schema.
#[derive(Debug, Clone, Copy)]
pub(super) enum Position {
    Itself,
    Each,
    Both,
}

// Helm's library carries the old drafts as they once were, and a little stricter.
static DRAFT4: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = strict_enum(&meta::DRAFT4);
    schema["properties"]["$ref"] = json!({"type": "string"});
    schema["properties"]["$schema"]["format"] = "uri".into();
    schema
});
static DRAFT6: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = strict_enum(&meta::DRAFT6);
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.remove("examples");
    }
    if let Some(patterns) = schema["properties"]["patternProperties"].as_object_mut() {
        patterns.remove("propertyNames");
    }
    schema
});
static DRAFT7: LazyLock<Value> = LazyLock::new(|| strict_enum(&meta::DRAFT7));

fn strict_enum(schema: &Value) -> Value {
    let mut schema = schema.clone();
    schema["properties"]["enum"]["minItems"] = 1.into();
    schema["properties"]["enum"]["uniqueItems"] = true.into();
    schema
}

/// A schema of the JSON Schema project, by its URL.
pub(super) fn known_document(url: &str) -> Option<&'static Value> {
    let path = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"))?;
    let document = match path.strip_prefix("json-schema.org/")? {
        "draft-04/schema" => &*DRAFT4,
        "draft-06/schema" => &*DRAFT6,
        "draft-07/schema" => &*DRAFT7,
        "draft/2019-09/schema" => &meta::DRAFT201909,
        "draft/2019-09/meta/core" => &meta::DRAFT201909_CORE,
        "draft/2019-09/meta/applicator" => &meta::DRAFT201909_APPLICATOR,
        "draft/2019-09/meta/validation" => &meta::DRAFT201909_VALIDATION,
        "draft/2019-09/meta/meta-data" => &meta::DRAFT201909_META_DATA,
        "draft/2019-09/meta/format" => &meta::DRAFT201909_FORMAT,
        "draft/2019-09/meta/content" => &meta::DRAFT201909_CONTENT,
        "schema" | "draft/2020-12/schema" => &meta::DRAFT202012,
        "draft/2020-12/meta/core" => &meta::DRAFT202012_CORE,
        "draft/2020-12/meta/applicator" => &meta::DRAFT202012_APPLICATOR,
        "draft/2020-12/meta/unevaluated" => &meta::DRAFT202012_UNEVALUATED,
        "draft/2020-12/meta/validation" => &meta::DRAFT202012_VALIDATION,
        "draft/2020-12/meta/meta-data" => &meta::DRAFT202012_META_DATA,
        "draft/2020-12/meta/format-annotation" => &meta::DRAFT202012_FORMAT_ANNOTATION,
        "draft/2020-12/meta/format-assertion" => &meta::DRAFT202012_FORMAT_ASSERTION,
        "draft/2020-12/meta/content" => &meta::DRAFT202012_CONTENT,
        _ => return None,
    };
    Some(document)
}
