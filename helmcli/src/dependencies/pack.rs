//! A chart in a directory as the archive helm makes of it.
//!
//! Mirrors `Save` (`pkg/chart/v2/util/save.go`).

use chart::{API_VERSION_V1, API_VERSION_V2, Chart, List, Time};
use flate2::{Compression, GzBuilder};
use golib::yaml;
use jiff::{RoundMode, Timestamp, TimestampRound, Unit, Zoned};
use serde::Serialize;
use tar::{Builder, EntryType, Header};

/// Now, in the zone of the machine, as Go writes it down.
pub(super) fn now() -> Time {
    let text = Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%.f%:z").to_string();
    text.parse().unwrap_or_else(|_| Time::utc(Timestamp::now()))
}

/// `<name>-<version>.tgz`.
pub(super) fn file_name(chart: &Chart) -> String {
    format!("{}-{}.tgz", chart.name(), chart.metadata.version)
}

/// Gives every file of the chart one time, so that archives come out the same.
pub(super) fn stamp(chart: &mut Chart, time: Time) {
    chart.modtime = time;
    chart.schema_modtime = time;
    if let Some(lock) = &mut chart.lock {
        lock.generated = time;
    }
    let files = chart
        .values_file
        .iter_mut()
        .chain(chart.templates.iter_mut());
    for file in files.chain(chart.files.iter_mut()) {
        file.modtime = time;
    }
    for dependency in &mut chart.dependencies {
        stamp(dependency, time);
    }
}

/// The archive; files without a time get `now`.
///
/// # Errors
/// A schema is no JSON.
pub(super) fn pack(chart: &Chart, now: Time) -> Result<Vec<u8>, String> {
    let zipper = GzBuilder::new()
        .comment("Helm")
        .write(Vec::new(), Compression::default());
    let mut archive = Archive {
        tar: Builder::new(zipper),
        now,
    };
    archive.chart(chart, "")?;
    let zipper = archive
        .tar
        .into_inner()
        .map_err(|error| error.to_string())?;
    zipper.finish().map_err(|error| error.to_string())
}

struct Archive<W: std::io::Write> {
    tar: Builder<W>,
    now: Time,
}

impl<W: std::io::Write> Archive<W> {
    fn chart(&mut self, chart: &Chart, prefix: &str) -> Result<(), String> {
        let base = format!("{prefix}{}", chart.name());
        let mut metadata = chart.metadata.clone();
        if metadata.api_version == API_VERSION_V1 {
            metadata.dependencies = List::absent();
        }
        self.document(&format!("{base}/Chart.yaml"), &metadata, chart.modtime)?;
        if let Some(lock) = &chart.lock
            && metadata.api_version == API_VERSION_V2
        {
            self.document(&format!("{base}/Chart.lock"), lock, lock.generated)?;
        }
        if let Some(file) = &chart.values_file {
            self.file(&format!("{base}/values.yaml"), &file.data, file.modtime)?;
        }
        if let Some(schema) = &chart.schema {
            if golib::json::decode(schema).is_err() {
                return Err("invalid JSON in values.schema.json".to_owned());
            }
            let name = format!("{base}/values.schema.json");
            self.file(&name, schema, chart.schema_modtime)?;
        }
        for file in chart.templates.iter().chain(&chart.files) {
            self.file(&format!("{base}/{}", file.name), &file.data, file.modtime)?;
        }
        for dependency in &chart.dependencies {
            self.chart(dependency, &format!("{base}/charts/"))?;
        }
        Ok(())
    }

    fn document(&mut self, name: &str, value: &impl Serialize, time: Time) -> Result<(), String> {
        let value = serde_json::to_value(value).map_err(|error| error.to_string())?;
        let text = yaml::encode(&value).map_err(|error| error.to_string())?;
        self.file(name, text.as_bytes(), time)
    }

    fn file(&mut self, name: &str, data: &[u8], time: Time) -> Result<(), String> {
        let time = if time.is_zero() { self.now } else { time };
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(data.len() as u64);
        header.set_mtime(seconds(time.instant()));
        header
            .set_device_major(0)
            .map_err(|error| error.to_string())?;
        header
            .set_device_minor(0)
            .map_err(|error| error.to_string())?;
        let written = self.tar.append_data(&mut header, name, data);
        written.map_err(|error| format!("{name}: {error}"))
    }
}

/// Rounded as Go's `archive/tar` rounds.
fn seconds(instant: Timestamp) -> u64 {
    let nearest = TimestampRound::new()
        .smallest(Unit::Second)
        .mode(RoundMode::HalfExpand);
    let rounded = instant.round(nearest).unwrap_or(instant);
    rounded.as_second().try_into().unwrap_or_default()
}
