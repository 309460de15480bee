//! The order of what is printed (`SortOrderTransformer`).

use crate::error::{Context as _, Error, Result};
use crate::kustomization::SortOptions;
use crate::resid::default_order;
use crate::resmap::ResMap;

/// Puts the objects into the order that is asked for.
pub(crate) fn sort(map: &mut ResMap, options: &SortOptions) -> Result<()> {
    const ORDERS: [&str; 2] = ["fifo", "legacy"];
    if !ORDERS.contains(&&*options.order.0) {
        return Err(Error::new(
            "the field 'sortOptions.order' must be one of [fifo, legacy]",
        ));
    }
    if options.order.0 == "fifo" {
        if options.legacy.is_some() {
            return Err(Error::new(
                "the field 'sortOptions.legacySortOptions' is set but the selected sort order is 'fifo', not 'legacy'",
            ));
        }
        return Ok(());
    }
    let (first, last) = match &options.legacy {
        Some(legacy) => (legacy.first.clone(), legacy.last.clone()),
        None => default_order(),
    };
    let rank = |kind: &str| -> i64 {
        let place = |list: &[String]| {
            list.iter()
                .rposition(|own| own == kind)
                .and_then(|at| i64::try_from(at).ok())
        };
        let length = i64::try_from(first.len()).unwrap_or(0);
        match (place(&first), place(&last)) {
            (_, Some(at)) => 1 + at,
            (Some(at), None) => at - length,
            (None, None) => 0,
        }
    };
    let mut list = std::mem::take(map.resources_mut());
    list.sort_by_cached_key(|resource| {
        let id = resource.cur_id();
        let or = |text: &str, instead: &str| {
            if text.is_empty() {
                instead.to_owned()
            } else {
                text.to_owned()
            }
        };
        (
            rank(&id.gvk.kind),
            id.gvk.legacy_sort_text(),
            format!(
                "{}|{}|{}",
                id.gvk,
                or(&id.namespace, "~X"),
                or(&id.name, "~N")
            ),
        )
    });
    map.append_all(list)
        .context("SortOrderTransformer: Failed to append to resources")
}
