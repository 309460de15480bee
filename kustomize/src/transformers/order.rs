//! The order of what is printed (`SortOrderTransformer`).

use crate::error::{Context as _, Error, Result};
use crate::kustomization::SortOptions;
use crate::resid::{ResId, default_order};
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
    let list = std::mem::take(map.resources_mut()).into_iter();
    let mut list: Vec<_> = list
        .map(|resource| (Key::of(resource.cur_id(), rank), resource))
        .collect();
    golib::sort::sort(&mut list, |(one, _), (other, _)| one.is_before(other));
    let list: Vec<_> = list.into_iter().map(|(_, resource)| resource).collect();
    map.append_all(list)
        .context("SortOrderTransformer: Failed to append to resources")
}

/// What an object is ordered by.
struct Key {
    rank: i64,
    gvk: String,
    is_namespace: bool,
    has_group: bool,
    id: String,
}

impl Key {
    fn of(id: &ResId, rank: impl Fn(&str) -> i64) -> Self {
        let or = |text: &str, instead: &str| match text {
            "" => instead.to_owned(),
            text => text.to_owned(),
        };
        Self {
            rank: rank(&id.gvk.kind),
            gvk: id.gvk.legacy_sort_text(),
            is_namespace: id.gvk.kind == "Namespace",
            has_group: !id.gvk.group.is_empty(),
            id: format!(
                "{}|{}|{}",
                id.gvk,
                or(&id.namespace, "~X"),
                or(&id.name, "~N")
            ),
        }
    }

    /// `legacyIDSorter.Less`. Two namespaces, one of them Kubernetes' own, are the other way round, which is no order beside other kinds of
    /// the same rank: what comes out is what Go's sort makes of it.
    fn is_before(&self, other: &Self) -> bool {
        if self.gvk == other.gvk {
            return self.id < other.id;
        }
        if self.rank != other.rank {
            return self.rank < other.rank;
        }
        let is_reversed =
            self.is_namespace && other.is_namespace && !(self.has_group && other.has_group);
        match is_reversed {
            true => self.gvk > other.gvk,
            false => self.gvk < other.gvk,
        }
    }
}
