//! Release records as a bundle's account sees them.
//!
//! The Go agent reads them from its own cache of all Secrets, whatever namespace a bundle names, and writes them with the account
//! (`helmcache/secret.go`): such an account needs no right to read Secrets. Read with the agent's rights wherever a tenant points, they would
//! tell a tenant what is in other namespaces. So the account reads; where it may not, and may create records, the agent reads for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use release::Release;
use release::kube::Cluster;
use release::storage::{
    Driver, Found, KubernetesDriver, RecordUid, StorageError, StoredRelease, StoredRevision,
};
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// How long it is remembered that the agent reads for an account. It asks again after that, as the account's rights may have changed.
const REMEMBERED: Duration = Duration::from_secs(5 * 60);

/// For which accounts the agent reads records, by account and namespace, since when.
#[derive(Clone, Default)]
pub(super) struct ReadFor(Arc<Mutex<HashMap<(String, String), Instant>>>);

impl ReadFor {
    fn contains(&self, account: &str, namespace: &str) -> bool {
        let known = self.0.lock();
        let since = known.get(&(account.to_owned(), namespace.to_owned()));
        since.is_some_and(|since| since.elapsed() < REMEMBERED)
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    fn insert(&self, account: &str, namespace: &str) {
        let mut known = self.0.lock();
        known.retain(|_, since| since.elapsed() < REMEMBERED);
        known.insert((account.to_owned(), namespace.to_owned()), Instant::now());
    }
}

/// Records of one namespace, for one account.
pub(super) struct AccountRecords {
    own: KubernetesDriver,
    /// Reads the records with the agent's own rights.
    read_for: KubernetesDriver,
    client: Client,
    account: String,
    namespace: String,
    /// Whether the account may write, once that was asked.
    may_write: OnceCell<bool>,
    read_for_accounts: ReadFor,
}

impl std::fmt::Debug for AccountRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountRecords")
            .field("account", &self.account)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl AccountRecords {
    /// Records in `own`, as the account of `client` does everything; `reader` is the agent, which knows for whom it reads.
    pub(super) fn new(
        own: KubernetesDriver,
        (reader, read_for_accounts): (Cluster, ReadFor),
        (account, client): (&str, Client),
        namespace: &str,
    ) -> Self {
        Self {
            read_for: own.clone().read_by(reader),
            own,
            client,
            account: account.to_owned(),
            namespace: namespace.to_owned(),
            may_write: OnceCell::new(),
            read_for_accounts,
        }
    }

    /// Whether the agent is known to read records for this account.
    fn is_read_for(&self) -> bool {
        self.read_for_accounts
            .contains(&self.account, &self.namespace)
    }

    /// Reads as the account, and for it where it may not but may write.
    async fn read<'a, T>(
        &'a self,
        read: impl Fn(&'a KubernetesDriver) -> BoxFuture<'a, Result<T, StorageError>>,
    ) -> Result<T, StorageError> {
        if self.is_read_for() {
            return read(&self.read_for).await;
        }
        match read(&self.own).await {
            Err(failed) if is_forbidden(&failed) && self.may_write().await => {
                read(&self.read_for).await
            }
            result => result,
        }
    }

    /// Whether the account may create Secrets here, which is asked once; an API server that does not say so has refused.
    async fn may_write(&self) -> bool {
        let ask = async {
            let review = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec {
                    resource_attributes: Some(ResourceAttributes {
                        namespace: Some(self.namespace.clone()),
                        resource: Some("secrets".to_owned()),
                        verb: Some("create".to_owned()),
                        ..ResourceAttributes::default()
                    }),
                    ..SelfSubjectAccessReviewSpec::default()
                },
                ..SelfSubjectAccessReview::default()
            };
            let reviews = Api::<SelfSubjectAccessReview>::all(self.client.clone());
            let answer = reviews.create(&PostParams::default(), &review).await;
            answer.is_ok_and(|answer| answer.status.is_some_and(|status| status.allowed))
        };
        let may_write = *self.may_write.get_or_init(|| ask).await;
        if may_write {
            self.read_for_accounts
                .insert(&self.account, &self.namespace);
        }
        may_write
    }
}

/// Whether the account was refused.
fn is_forbidden(failed: &StorageError) -> bool {
    matches!(failed, StorageError::Api { source, .. } if source.is_forbidden())
}

impl Driver for AccountRecords {
    fn history<'a>(
        &'a self,
        release: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRevision>, StorageError>> {
        self.read(move |driver| driver.history(release)).boxed()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Found, StorageError>> {
        self.read(move |driver| driver.get(key)).boxed()
    }

    fn create<'a>(
        &'a self,
        release: &'a Release,
    ) -> BoxFuture<'a, Result<RecordUid, StorageError>> {
        self.own.create(release)
    }

    fn update<'a>(&'a self, stored: &'a StoredRelease) -> BoxFuture<'a, Result<(), StorageError>> {
        self.own.update(stored)
    }

    fn delete<'a>(
        &'a self,
        key: &'a str,
        uid: &'a RecordUid,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        self.own.delete(key, uid)
    }
}
