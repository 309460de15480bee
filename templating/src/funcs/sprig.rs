//! The functions of Sprig 3.3.0, a file per family, and those that Helm adds or replaces.

use super::functions::Functions;
use super::{
    crypto, date, defaults, dict, encoding, list, network, numeric, path, reflect, regex, semver,
    strings, url,
};
use crate::error::Error;
use crate::value::Str;

/// Adds Sprig's functions. `env` and `expandenv` are left out: no program we stand for offers them.
pub(crate) fn add_sprig(functions: &mut Functions) {
    let families = [
        strings::add,
        list::add,
        dict::add,
        defaults::add,
        numeric::add,
        crypto::add,
        #[cfg(feature = "certificates")]
        super::certificate::add,
        date::add,
        encoding::add,
        network::add,
        path::add,
        reflect::add,
        regex::add,
        semver::add,
        url::add,
    ];
    for add in families {
        add(functions);
    }
    // Helm puts one in its place whose text the engine recognises.
    functions.add("fail", |message: Str| {
        Err::<Str, _>(Error::message(message.to_string()))
    });
}

/// Adds what Helm's engine has beyond Sprig: data formats and durations.
pub(crate) fn add_helm(functions: &mut Functions) {
    encoding::add_helm(functions);
    date::add_helm(functions);
}
