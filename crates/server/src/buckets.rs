//! Buckets by name, of pools and of clusters. A pool is found before a cluster of the same name.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::gateways::Gateways;
use crate::objects::ObjectServices;
use crate::volumes::Volumes;
use api::types::{Bucket, ChangeBucket, ObjectPage, ObjectQuery};

/// The buckets of pools and clusters.
pub(crate) struct Buckets {
    volumes: Arc<Volumes>,
    objects: Arc<ObjectServices>,
    gateways: Arc<Gateways>,
}

impl Buckets {
    pub(crate) fn new(volumes: Arc<Volumes>, objects: Arc<ObjectServices>, gateways: Arc<Gateways>) -> Self {
        Self { volumes, objects, gateways }
    }

    /// Returns the gateways if the name is that of a cluster.
    fn gateways(&self, name: &str) -> Option<&Arc<Gateways>> {
        self.volumes.cluster(name).map(|_| &self.gateways)
    }

    /// Returns the buckets by name.
    ///
    /// # Errors
    /// When S3 does not run on the pool, or the cluster does not answer.
    pub(crate) async fn list(&self, pool: &str) -> Result<Vec<Bucket>> {
        match self.gateways(pool) {
            Some(gateways) => gateways.buckets(pool).await,
            None => self.objects.buckets(pool).await,
        }
    }

    /// Returns a bucket.
    ///
    /// # Errors
    /// As [`Buckets::list`]; `NotFound`.
    pub(crate) async fn get(&self, pool: &str, name: &str) -> Result<Bucket> {
        match self.gateways(pool) {
            Some(gateways) => gateways.bucket(pool, name).await,
            None => self.objects.bucket(pool, name).await,
        }
    }

    /// Lists objects of a bucket of a pool by key.
    ///
    /// # Errors
    /// As [`Buckets::get`]; `Invalid` for a cluster.
    pub(crate) async fn objects(&self, pool: &str, name: &str, query: ObjectQuery) -> Result<ObjectPage> {
        if self.gateways(pool).is_some() {
            let message = format!("'{pool}' is a cluster, whose objects only S3 clients list");
            return Err(Error::new(ErrorKind::Invalid, message)
                .hint(format!("'gabion key create --cluster {pool}' creates a key for them")));
        }
        self.objects.objects(pool, name, query).await
    }

    /// Creates a bucket.
    ///
    /// # Errors
    /// For an invalid name or a name in use.
    pub(crate) async fn create(&self, pool: &str, name: &str) -> Result<Bucket> {
        match self.gateways(pool) {
            Some(gateways) => gateways.create_bucket(pool, name).await,
            None => self.objects.create_bucket(pool, name).await,
        }
    }

    /// Changes the settings of a bucket.
    ///
    /// # Errors
    /// As [`Buckets::get`]; `Invalid` for a setting that a cluster does not have.
    pub(crate) async fn change(&self, pool: &str, name: &str, request: ChangeBucket) -> Result<Bucket> {
        match self.gateways(pool) {
            Some(gateways) => gateways.change_bucket(pool, name, request).await,
            None => self.objects.change_bucket(pool, name, request).await,
        }
    }

    /// Deletes an empty bucket.
    ///
    /// # Errors
    /// `NotFound`; `Busy` for a bucket with objects.
    pub(crate) async fn delete(&self, pool: &str, name: &str) -> Result<()> {
        match self.gateways(pool) {
            Some(gateways) => gateways.delete_bucket(pool, name).await,
            None => self.objects.delete_bucket(pool, name).await,
        }
    }
}
