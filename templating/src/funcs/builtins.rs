//! Go's own functions.

use super::Functions;

pub(super) fn add(_functions: &mut Functions) {}
