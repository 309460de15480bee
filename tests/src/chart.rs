//! Chart archives written by tests.

use std::io::Write as _;

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;

/// A chart in the making: its name, its version and its files.
#[derive(Debug, Clone)]
pub struct Chart {
    name: String,
    version: String,
    files: Vec<(String, Vec<u8>)>,
}

impl Chart {
    /// A chart with nothing but a `Chart.yaml`.
    pub fn new(name: &str, version: &str) -> Self {
        let metadata =
            format!("apiVersion: v2\nname: {name}\nversion: {version}\nappVersion: \"1.0\"\n");
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            files: Vec::new(),
        }
        .file("Chart.yaml", metadata)
    }

    /// The three-object chart of demo and measurements: a ConfigMap, a Service and a Deployment named after the release.
    pub fn small(name: &str, version: &str) -> Self {
        Self::new(name, version)
            .file("values.yaml", "greeting: hello\nreplicas: 1\nimage: registry.example/web:1\n")
            .template(
                "configmap.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  greeting: {{ .Values.greeting | quote }}\n  version: {{ .Chart.Version | quote }}\n",
            )
            .template(
                "service.yaml",
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: {{ .Release.Name }}\nspec:\n  selector:\n    app: {{ .Release.Name }}\n  ports:\n  - port: 80\n",
            )
            .template(
                "deployment.yaml",
                "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}\n  labels: {{- toYaml (dict \"app\" .Release.Name) | nindent 4 }}\nspec:\n  replicas: {{ .Values.replicas }}\n  selector:\n    matchLabels:\n      app: {{ .Release.Name }}\n  template:\n    metadata:\n      labels:\n        app: {{ .Release.Name }}\n    spec:\n      containers:\n      - name: web\n        image: {{ .Values.image }}\n",
            )
    }

    /// Adds or replaces a file, by its path in the chart.
    #[must_use]
    pub fn file(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files.retain(|(name, _)| name != path);
        self.files.push((path.to_owned(), content.into()));
        self
    }

    /// Adds `templates/<name>`.
    #[must_use]
    pub fn template(self, name: &str, content: &str) -> Self {
        self.file(&format!("templates/{name}"), content)
    }

    /// The chart's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The chart's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The files, as a bundle would carry them: path and content.
    pub fn files(&self) -> &[(String, Vec<u8>)] {
        &self.files
    }

    /// The `.tgz`.
    ///
    /// # Errors
    /// When a path does not fit into a tar header.
    pub fn archive(&self) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        for (path, content) in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive.append_data(
                &mut header,
                format!("{}/{path}", self.name),
                content.as_slice(),
            )?;
        }
        let mut gzip = archive.into_inner()?;
        gzip.flush()?;
        Ok(gzip.finish()?)
    }
}

/// The name and version in an archive's `Chart.yaml`, read line by line: enough for an index, and no YAML parser of ours is trusted.
///
/// # Errors
/// When the archive has no such file or the file no such line.
pub fn identity(archive: &[u8]) -> Result<(String, String)> {
    use std::io::Read as _;
    let mut entries = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    for entry in entries.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        if path.components().count() != 2 || path.file_name().is_none_or(|n| n != "Chart.yaml") {
            continue;
        }
        let mut text = String::new();
        entry.read_to_string(&mut text)?;
        let field = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
                .map(|v| v.trim().trim_matches(['"', '\'']).to_owned())
                .with_context(|| format!("Chart.yaml has no {key}"))
        };
        return Ok((field("name")?, field("version")?));
    }
    anyhow::bail!("the archive has no Chart.yaml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_knows_its_name() -> Result<()> {
        let archive = Chart::small("web", "1.2.3").archive()?;
        assert_eq!(identity(&archive)?, ("web".to_owned(), "1.2.3".to_owned()));
        Ok(())
    }
}
