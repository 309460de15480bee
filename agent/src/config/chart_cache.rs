//! Where fetched charts are kept between processes.

use std::path::PathBuf;

use chart::source::DiskSettings;

use super::environment::{CACHE_SIZE_VARIABLE, CACHE_VARIABLE, Environment, SettingsError};

/// What it may take where [`CACHE_SIZE_VARIABLE`] is unset, in MiB.
const DEFAULT_MIB: u64 = 256;

/// The system's folder for temporary files, `TMPDIR` or `/tmp`, unless [`CACHE_VARIABLE`] names one; `None` where that is `off` or nothing
/// may be kept.
pub(super) fn from_environment(env: &Environment) -> Result<Option<DiskSettings>, SettingsError> {
    let mib = match env.get(CACHE_SIZE_VARIABLE) {
        None => DEFAULT_MIB,
        Some(text) => text
            .parse()
            .map_err(|_| SettingsError::CacheSize(text.to_owned()))?,
    };
    let directory = match env.get(CACHE_VARIABLE) {
        Some("off") => return Ok(None),
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(env.get("TMPDIR").unwrap_or("/tmp")),
    };
    let max_bytes = mib.saturating_mul(1 << 20);
    Ok((mib > 0).then_some(DiskSettings {
        directory,
        max_bytes,
    }))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::unset(&[], Some(("/tmp", 256)))]
    #[case::temporary(&[("TMPDIR", "/scratch")], Some(("/scratch", 256)))]
    #[case::a_volume(&[("FLEET_AGENT_CACHE", "/cache"), ("FLEET_AGENT_CACHE_MIB", "1024")], Some(("/cache", 1024)))]
    #[case::off(&[("FLEET_AGENT_CACHE", "off")], None)]
    #[case::nothing(&[("FLEET_AGENT_CACHE_MIB", "0")], None)]
    fn where_charts_are_kept(#[case] env: &[(&str, &str)], #[case] want: Option<(&str, u64)>) {
        let settings = from_environment(&Environment::of(env)).unwrap();
        let want = want.map(|(directory, mib)| DiskSettings {
            directory: directory.into(),
            max_bytes: mib << 20,
        });
        assert_eq!(settings, want);
    }

    #[test]
    fn a_cache_size_that_is_no_number_is_refused() {
        let failed = from_environment(&[("FLEET_AGENT_CACHE_MIB", "1Gi")].into()).unwrap_err();
        let text = "FLEET_AGENT_CACHE_MIB is \"1Gi\", not a number of MiB";
        assert_eq!(failed.to_string(), text);
    }
}
