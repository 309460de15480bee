//! Functions that steer a render: `include`, `tpl`, `required`, `fail` and `lookup`, as Helm's engine defines them.

use super::Functions;

/// Adds Helm's `include`, `tpl`, `required`, `fail` and `lookup`.
pub fn add_flow(_functions: &mut Functions) {}

/// The same as Helm's linter sees them: `required` and `fail` let everything pass, `lookup` finds nothing.
pub fn add_flow_lint(_functions: &mut Functions) {}
