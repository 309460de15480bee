//! Parts of paths: Go's `path` and `path/filepath`, which are the same where we run.

use golib::path;

use super::functions::Functions;
use crate::value::Str;

pub(super) fn add(f: &mut Functions) {
    f.add("base", |path: Str| Str::from(path::base(&path)));
    f.add("dir", |path: Str| path::dir(&path));
    f.add("clean", |path: Str| path::clean(&path));
    f.add("ext", |path: Str| Str::from(path::ext(&path)));
    f.add("isAbs", |path: Str| path::is_abs(&path));
    for name in ["Base", "Dir", "Clean", "Ext", "IsAbs"] {
        let plain = format!("{}{}", name[..1].to_lowercase(), &name[1..]);
        f.alias(&plain, &format!("os{name}"));
    }
}
