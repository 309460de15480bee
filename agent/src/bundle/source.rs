//! Where a bundle's files are, and getting them.
//!
//! Mirrors `helmdeploy` (`internal/cmd/agent/deployer/deployer.go`), with one addition: a bundle that
//! names a chart but brings no files is pulled from where the chart is. The stock agent installs an
//! empty release for it.

use std::error::Error as StdError;
use std::future::Future;
use std::sync::Arc;

use ::chart::source::{Access, ChartRef, FetchedChart, Fetcher, Hosts};
use golib::budget::Budget as Weight;
use k8s_openapi::api::core::v1::Secret;
use signatures::{Policy, Verified};
use tokio::time::Instant;

use super::chart::{Identity, Package, chart_ref};
use super::error::{BundleError, UpstreamKind};
use super::manifest::{EMPTY_MANIFEST_ID, Manifest};
use super::verification::Requirements;
use super::{access, chart, verification};
use crate::api::{
    ANNOTATION_SIGNATURES, BundleDeployment, BundleHelmOptions, Content, HelmOptions, LABEL_COMMIT,
};

/// Name of the storage Secret of a bundle without manifest ID.
const DEFAULT_STORAGE_SECRET: &str = "ocistorage";

/// Where the files are, decided from the BundleDeployment alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Stored in a registry; the Secret says which.
    Storage {
        /// The Secret beside the BundleDeployment.
        secret: String,
        /// The manifest that must come.
        manifest_id: String,
    },
    /// A chart to fetch, as a HelmOp wants it.
    Chart {
        /// The chart's repository, name and version.
        chart: ChartRef,
        /// Secret, CA and switches.
        options: BundleHelmOptions,
    },
    /// A Content. One without files in it says that the chart is to be had from where the options name it; one that cannot be had says
    /// nothing.
    Content {
        /// Name of the Content.
        name: String,
        /// What the options name, if it can be fetched.
        chart: Option<ChartRef>,
    },
}

impl Source {
    /// In Fleet's order: registry storage, HelmOps, Content.
    ///
    /// # Errors
    /// [`BundleError::NoHelmOptions`] for a HelmOp without Helm options.
    pub fn of(bundle_deployment: &BundleDeployment) -> Result<Self, BundleError> {
        let spec = &bundle_deployment.spec;
        let manifest_id = spec.manifest_id();
        if spec.oci_contents {
            let secret = match manifest_id {
                "" => DEFAULT_STORAGE_SECRET,
                id => id,
            };
            return Ok(Self::Storage {
                secret: secret.to_owned(),
                manifest_id: manifest_id.to_owned(),
            });
        }
        let helm = spec.options.helm.as_ref();
        if let Some(options) = &spec.helm_chart_options {
            let chart = chart_ref(helm.ok_or(BundleError::NoHelmOptions)?);
            return Ok(Self::Chart {
                chart,
                options: options.clone(),
            });
        }
        let chart = helm.filter(|helm| is_remote(helm)).map(chart_ref);
        Ok(Self::Content {
            name: manifest_id.to_owned(),
            chart,
        })
    }
}

impl Source {
    /// Whether a repository or registry is asked.
    pub fn is_fetched(&self) -> bool {
        !matches!(self, Self::Content { chart: None, .. })
    }
}

/// Whether the options point outside the bundle: a repository, or a chart that is an address.
fn is_remote(helm: &HelmOptions) -> bool {
    let is_address = |text: &str| {
        ["http://", "https://", "oci://"]
            .iter()
            .any(|scheme| text.starts_with(scheme))
    };
    is_address(&helm.repo) || (helm.repo.is_empty() && is_address(&helm.chart))
}

/// Reads from the upstream cluster that fetching a bundle needs. An absent object is `None`.
pub trait Upstream: Sync {
    /// Reads a Secret, uncached.
    fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<Secret>, Box<dyn StdError + Send + Sync>>> + Send;

    /// Reads a Content.
    fn content(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Option<Content>, Box<dyn StdError + Send + Sync>>> + Send;
}

/// Where a bundle's files are unpacked.
pub trait Unpacking: Send {
    /// Does work that may take a while, once there is room for so many bytes of files and what is made of them.
    ///
    /// # Errors
    /// The work panicked.
    fn work<T: Send + 'static>(
        &mut self,
        bytes: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, BundleError>> + Send;
}

/// A bundle's files, complete and checked, not yet a chart.
#[derive(Clone, Debug)]
pub enum Bundle {
    /// The bundle's own files.
    Files(Manifest),
    /// A fetched chart, and its signers, if it had to be signed.
    Chart(FetchedChart, Option<Verified>),
}

impl Bundle {
    /// How many bytes its files take, decoded and unpacked.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::Files(manifest) => manifest.unpacked_bytes,
            Self::Chart(fetched, _) => fetched.unpacked_bytes,
        }
    }

    /// Makes the chart, whose values may take so much once they are read. May take a while for large bundles; nothing is fetched any more.
    ///
    /// # Errors
    /// See [`chart::from_manifest`] and [`chart::from_archive`].
    pub fn package(
        &self,
        bundle_deployment: &BundleDeployment,
        agent_namespace: &str,
        decoded: &mut Weight,
    ) -> Result<Package, BundleError> {
        let identity = Identity {
            bundle_deployment: bundle_deployment.name(),
            agent_namespace,
            commit: bundle_deployment.label(LABEL_COMMIT).unwrap_or_default(),
        };
        let options = &bundle_deployment.spec.options;
        match self {
            Self::Files(manifest) => chart::from_manifest(manifest, options, identity, decoded),
            Self::Chart(fetched, None) => chart::from_archive(fetched, options, identity, decoded),
            Self::Chart(fetched, Some(verified)) => {
                let mut package = chart::from_archive(fetched, options, identity, decoded)?;
                let metadata = &mut package.chart.metadata;
                verification::check_identity(fetched, options.helm.as_ref(), metadata)?;
                let annotations = metadata.annotations.get_or_insert_default();
                annotations.insert(ANNOTATION_SIGNATURES.to_owned(), verified.to_string());
                Ok(package)
            }
        }
    }
}

/// Settings of fetching that are not the bundle's.
pub struct Fetching<'f> {
    /// Fetches charts.
    pub fetcher: &'f Fetcher,
    /// Credentials and CAs of hosts that are configured on this cluster.
    pub hosts: Option<Arc<Hosts>>,
    /// A chart's source is asked again where it was asked before.
    pub since: Option<Instant>,
    /// The signature policy that charts must satisfy.
    pub policy: &'f Policy,
}

impl Fetching<'_> {
    fn over(&self, access: Access) -> Access {
        Access {
            hosts: self.hosts.clone(),
            ..access
        }
    }
}

/// Gets a bundle's files from wherever they are; a fetched chart, only if it is signed as the policy asks.
///
/// # Errors
/// [`BundleError`].
///
/// # Cancellation
/// Nothing is changed anywhere; dropping the future stops the requests.
pub async fn load<U: Upstream>(
    bundle_deployment: &BundleDeployment,
    upstream: &U,
    fetching: &Fetching<'_>,
    unpacking: &mut impl Unpacking,
) -> Result<Bundle, BundleError> {
    let namespace = bundle_deployment.namespace();
    let requirements = Requirements::of(bundle_deployment, fetching.policy)?;
    let fetch = async |chart: &ChartRef, access: Access| {
        let access = fetching.over(access);
        let fetched = requirements.fetch(fetching.fetcher, chart, &access, fetching.since);
        let (fetched, verified) = fetched.await?;
        Ok::<_, BundleError>(Bundle::Chart(fetched, verified))
    };
    match Source::of(bundle_deployment)? {
        Source::Storage {
            secret,
            manifest_id,
        } => {
            requirements.check_content()?;
            let found = upstream.secret(namespace, &secret).await;
            let secret = required(found, UpstreamKind::Secret, &secret)?;
            let storage = access::storage(&secret, &manifest_id)?;
            let access = fetching.over(storage.access);
            let layer = fetching
                .fetcher
                .layer(&storage.reference, &manifest_id, &access)
                .await?;
            let bytes = layer.bytes.len() as u64;
            let read = move || Manifest::from_registry(&layer.bytes, &manifest_id);
            unpacking.work(bytes, read).await?.map(Bundle::Files)
        }
        Source::Chart { chart, options } => {
            let secret = match options.secret_name.as_str() {
                "" => None,
                name => {
                    let found = upstream.secret(namespace, name).await;
                    Some(required(found, UpstreamKind::Secret, name)?)
                }
            };
            let access = access::helm_access(&options, secret.as_ref())?;
            fetch(&chart, access).await
        }
        Source::Content {
            name,
            chart: Some(chart),
        } if name.is_empty() || name == EMPTY_MANIFEST_ID => fetch(&chart, Access::default()).await,
        Source::Content { name, chart } => {
            let found = upstream.content(&name).await;
            let content = required(found, UpstreamKind::Content, &name)?;
            let count = move || (Manifest::packed_in(&content), content);
            let (bytes, content) = unpacking.work(0, count).await?;
            let unpack = move || Manifest::from_content(&content);
            let manifest = unpacking.work(bytes, unpack).await??;
            match chart.filter(|_| manifest.resources.is_empty()) {
                Some(chart) => fetch(&chart, Access::default()).await,
                None => {
                    requirements.check_content()?;
                    Ok(Bundle::Files(manifest))
                }
            }
        }
    }
}

fn required<T>(
    found: Result<Option<T>, Box<dyn StdError + Send + Sync>>,
    kind: UpstreamKind,
    name: &str,
) -> Result<T, BundleError> {
    let name = name.to_owned();
    match found {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(BundleError::Missing { kind, name }),
        Err(source) => Err(BundleError::Read { kind, name, source }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(spec: serde_json::Value) -> BundleDeployment {
        let object = json!({"metadata": {"name": "app", "namespace": "ns"}, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn order_of_sources() {
        let source = |spec| Source::of(&deployment(spec)).unwrap();
        let stored =
            source(json!({"ociContents": true, "deploymentID": "s-1:x", "helmChartOptions": {}}));
        assert!(matches!(stored, Source::Storage { secret, .. } if secret == "s-1"));
        let unnamed = source(json!({"ociContents": true, "deploymentID": ":x"}));
        assert!(matches!(unnamed, Source::Storage { secret, .. } if secret == "ocistorage"));
        let op = json!({"helmChartOptions": {}, "deploymentID": ":x", "options": {"helm": {"chart": "c"}}});
        assert!(matches!(source(op), Source::Chart { chart, .. } if chart.chart == "c"));
        let error = Source::of(&deployment(json!({"helmChartOptions": {}}))).unwrap_err();
        assert_eq!(error.to_string(), "helm options not found");
    }

    #[test]
    fn only_addresses_are_pulled_natively() {
        let chart = |helm: serde_json::Value| {
            let spec = json!({"deploymentID": "s-1:x", "options": {"helm": helm}});
            match Source::of(&deployment(spec)).unwrap() {
                Source::Content { chart, .. } => chart.is_some(),
                other => panic!("{other:?}"),
            }
        };
        assert!(chart(json!({"repo": "https://h/c", "chart": "web"})));
        assert!(chart(json!({"repo": "oci://h/c"})));
        assert!(chart(json!({"chart": "oci://h/c"})));
        assert!(chart(json!({"chart": "https://h/c.tgz"})));
        assert!(!chart(json!({"chart": "./charts/web"})));
        assert!(!chart(json!({})));
    }

    struct AtOnce;

    impl Unpacking for AtOnce {
        async fn work<T: Send + 'static>(
            &mut self,
            _: u64,
            work: impl FnOnce() -> T + Send + 'static,
        ) -> Result<T, BundleError> {
            Ok(work())
        }
    }

    #[test]
    fn a_bundle_takes_what_its_files_take_unpacked() {
        let gzip = |data: &[u8]| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut gzip, data).unwrap();
            gzip.finish().unwrap()
        };
        let size = |files: &[(&str, Vec<u8>, &str)]| {
            let file = |(name, data, encoding): &(&str, Vec<u8>, &str)| {
                let content = match *encoding {
                    "" => String::from_utf8(data.clone()).unwrap(),
                    _ => golib::base64::encode(data),
                };
                json!({"name": name, "content": content, "encoding": encoding})
            };
            let files: Vec<_> = files.iter().map(file).collect();
            let json = json!({"resources": files}).to_string();
            Bundle::Files(Manifest::from_json(json.as_bytes()).unwrap()).size_bytes()
        };
        const MEBIBYTE: usize = 1 << 20;
        let zeros = gzip(&vec![0; MEBIBYTE]);
        let packed = ("a", zeros.clone(), "base64+gz");
        assert_eq!(
            size(&[packed.clone(), ("b", b"text".to_vec(), "")]),
            MEBIBYTE as u64 + 4
        );
        let chart = ("c/charts/s.tgz", zeros.clone(), "base64");
        assert!(size(&[chart]) > MEBIBYTE as u64);
        let twice = ("c/charts/s.tgz", gzip(&zeros), "base64+gz");
        assert!(size(&[twice]) > MEBIBYTE as u64);
        // No more is looked at than says that it is too much.
        assert_eq!(size(&vec![packed; 40]), (32 << 20) + 1);
        assert!(size(&[("d", b"broken".to_vec(), "base64+gz")]) < 10);
    }

    struct Nothing;

    impl Upstream for Nothing {
        async fn secret(
            &self,
            _: &str,
            _: &str,
        ) -> Result<Option<Secret>, Box<dyn StdError + Send + Sync>> {
            Ok(None)
        }

        async fn content(
            &self,
            _: &str,
        ) -> Result<Option<Content>, Box<dyn StdError + Send + Sync>> {
            Ok(None)
        }
    }

    #[tokio::test]
    async fn a_bundle_without_content_names_what_is_missing() {
        let fetcher = Fetcher::new(::chart::source::Settings::default());
        let fetching = Fetching {
            fetcher: &fetcher,
            hosts: None,
            since: None,
            policy: &Policy::default(),
        };
        let load = async |spec| {
            let loaded = load(&deployment(spec), &Nothing, &fetching, &mut AtOnce).await;
            loaded.unwrap_err().to_string()
        };
        assert_eq!(
            load(json!({"deploymentID": "s-1:x"})).await,
            "contents.fleet.cattle.io \"s-1\" not found"
        );
        assert_eq!(
            load(json!({"ociContents": true, "deploymentID": "s-1:x"})).await,
            "secrets \"s-1\" not found"
        );
        let op = json!({"helmChartOptions": {"helmOpSecretName": "auth"}, "options": {"helm": {"chart": "c"}}});
        assert_eq!(load(op).await, "secrets \"auth\" not found");
    }
}
