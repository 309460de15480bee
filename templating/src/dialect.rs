//! The function tables of the programs whose templates we read.

use std::sync::{Arc, LazyLock};

use crate::exec::{MissingKey, TemplateSet};
use crate::funcs::{Functions, add_flow, add_flow_lint, add_helm, add_sprig};

/// A function table with a history.
///
/// ```
/// use templating::Dialect;
///
/// assert!(Dialect::Helm.functions().get("toYaml").is_some());
/// assert!(Dialect::Fleet.functions().get("toYaml").is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Charts: Sprig without `env` and `expandenv`, and Helm's own functions.
    Helm,
    /// Charts under `helm lint`: nothing is required, nothing fails, nothing is found in the cluster.
    HelmLint,
    /// The `${ }` of fleet.yaml: Go's functions and Sprig alone, without those that reach outside.
    Fleet,
}

impl Dialect {
    /// The table. There is one of each kind; it is shared.
    ///
    /// ```
    /// use templating::Dialect;
    ///
    /// // For a table of one's own that begins with Helm's.
    /// let mut functions = (*Dialect::Helm.functions()).clone();
    /// functions.add("site", || "edge-17");
    /// assert!(functions.get("site").is_some() && functions.get("include").is_some());
    /// ```
    pub fn functions(self) -> Arc<Functions> {
        static HELM: LazyLock<Arc<Functions>> = LazyLock::new(|| Dialect::Helm.build().into());
        static LINT: LazyLock<Arc<Functions>> = LazyLock::new(|| Dialect::HelmLint.build().into());
        static FLEET: LazyLock<Arc<Functions>> = LazyLock::new(|| Dialect::Fleet.build().into());
        let table = match self {
            Dialect::Helm => &HELM,
            Dialect::HelmLint => &LINT,
            Dialect::Fleet => &FLEET,
        };
        Arc::clone(table)
    }

    /// An empty set of this dialect, with its delimiters and its idea of missing keys. Helm calls its set `gotpl`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use templating::{Dialect, Limits, Renderer, SystemHost, Value};
    ///
    /// let mut set = Dialect::Fleet.template_set("values");
    /// set.parse("replicas", "${ add 1 2 }")?;
    /// let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
    /// assert_eq!(renderer.render("replicas", &Value::Nil)?, b"3");
    /// # Ok::<(), templating::Error>(())
    /// ```
    pub fn template_set(self, name: &str) -> TemplateSet {
        let set = TemplateSet::new(name, self.functions());
        match self {
            Dialect::Helm | Dialect::HelmLint => set.with_missing_key(MissingKey::Zero),
            Dialect::Fleet => set
                .with_delims("${", "}")
                .with_missing_key(MissingKey::Error),
        }
    }

    fn build(self) -> Functions {
        let mut functions = Functions::builtin();
        add_sprig(&mut functions);
        match self {
            Dialect::Helm => {
                add_helm(&mut functions);
                add_flow(&mut functions);
            }
            Dialect::HelmLint => {
                add_helm(&mut functions);
                add_flow_lint(&mut functions);
            }
            Dialect::Fleet => functions.remove("getHostByName"),
        }
        functions
    }
}
