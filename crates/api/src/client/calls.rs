//! A method for each endpoint.

use super::Client;
use crate::error::{ErrorKind, Result};
use crate::name::VolumeName;
use crate::paths;
use crate::types::{
    AccessKey, AddDrive, AuditQuery, AuditRecord, Bucket, ChangeBucket, ChangeRebuild, ChangeS3Group,
    ChangeS3Policy, ChangeS3Provider, ChangeS3Role, ChangeS3User, ChangeScrub, ChangeWebhook, CloneSnapshot,
    ClosePool, Cluster, CreateBucket, CreateExport, CreateKey, CreatePool, CreateS3Group, CreateS3Policy,
    CreateS3Provider, CreateS3Role, CreateS3User, CreateSnapshot, CreateSnapshots, CreateToken, CreateVolume,
    CreateWebhook, CreatedToken, DaemonStatus, DeleteExportQuery, DiffQuery, Event, EventQuery, Export,
    ExportImage, IdentifiedDrive, IdentifyDrives, Identity, ImportImage, ObjectPage, ObjectQuery, OpenPool,
    Operation, OperationQuery, Pool, QosLimits, ResizeVolume, ReturnDrive, RollbackVolume, S3Group, S3Policy,
    S3Provider, S3Role, S3Service, S3User, StartS3, Token, Volume, VolumeDiff, VolumeUsage, Webhook,
};

/// Every method returns the daemon's error unchanged, or `Unreachable` or `Denied` if there is no
/// response.
#[allow(clippy::missing_errors_doc)]
impl Client {
    /// Returns the status of the daemon.
    pub async fn get_daemon(&self) -> Result<DaemonStatus> {
        self.call(&paths::GET_DAEMON, &[], &(), &()).await
    }

    /// Lists the running operations and the last ones that ended.
    pub async fn list_operations(&self) -> Result<Vec<Operation>> {
        self.call(&paths::LIST_OPERATIONS, &[], &(), &()).await
    }

    /// Returns an operation; waits for a change of it if the query asks for that.
    pub async fn get_operation(&self, id: u64, query: &OperationQuery) -> Result<Operation> {
        self.call(&paths::GET_OPERATION, &[&id.to_string()], query, &()).await
    }

    /// Cancels an operation.
    pub async fn cancel_operation(&self, id: u64) -> Result<Operation> {
        self.call(&paths::CANCEL_OPERATION, &[&id.to_string()], &(), &()).await
    }

    /// Lists the pools.
    pub async fn list_pools(&self) -> Result<Vec<Pool>> {
        self.call(&paths::LIST_POOLS, &[], &(), &()).await
    }

    /// Returns a pool.
    pub async fn get_pool(&self, pool: &str) -> Result<Pool> {
        self.call(&paths::GET_POOL, &[pool], &(), &()).await
    }

    /// Creates a pool and opens it.
    pub async fn create_pool(&self, request: &CreatePool) -> Result<Operation> {
        self.call(&paths::CREATE_POOL, &[], &(), request).await
    }

    /// Opens a pool.
    pub async fn open_pool(&self, pool: &str, request: &OpenPool) -> Result<Operation> {
        self.call(&paths::OPEN_POOL, &[pool], &(), request).await
    }

    /// Closes a pool.
    pub async fn close_pool(&self, pool: &str, request: &ClosePool) -> Result<Operation> {
        self.call(&paths::CLOSE_POOL, &[pool], &(), request).await
    }

    /// Destroys a pool and all data in it.
    pub async fn destroy_pool(&self, pool: &str) -> Result<Operation> {
        self.call(&paths::DESTROY_POOL, &[pool], &(), &()).await
    }

    /// Lists the events of a pool in order.
    pub async fn list_events(&self, pool: &str, query: &EventQuery) -> Result<Vec<Event>> {
        self.call(&paths::LIST_EVENTS, &[pool], query, &()).await
    }

    /// Pauses, resumes or rate-limits the rebuild of a pool.
    pub async fn change_rebuild(&self, pool: &str, request: &ChangeRebuild) -> Result<Pool> {
        self.call(&paths::CHANGE_REBUILD, &[pool], &(), request).await
    }

    /// Starts a scrub of a pool.
    pub async fn start_scrub(&self, pool: &str) -> Result<Pool> {
        self.call(&paths::START_SCRUB, &[pool], &(), &()).await
    }

    /// Pauses, resumes or rate-limits scrubbing, or sets its interval.
    pub async fn change_scrub(&self, pool: &str, request: &ChangeScrub) -> Result<Pool> {
        self.call(&paths::CHANGE_SCRUB, &[pool], &(), request).await
    }

    /// Cancels the scrub in progress.
    pub async fn cancel_scrub(&self, pool: &str) -> Result<Pool> {
        self.call(&paths::CANCEL_SCRUB, &[pool], &(), &()).await
    }

    /// Adds a drive to a pool.
    pub async fn add_drive(&self, pool: &str, request: &AddDrive) -> Result<Operation> {
        self.call(&paths::ADD_DRIVE, &[pool], &(), request).await
    }

    /// Takes a drive out of use as if it had failed.
    pub async fn fail_drive(&self, pool: &str, index: u16) -> Result<Pool> {
        self.call(&paths::FAIL_DRIVE, &[pool, &index.to_string()], &(), &()).await
    }

    /// Adds a drive to a pool in place of drive `index`.
    pub async fn replace_drive(&self, pool: &str, index: u16, request: &AddDrive) -> Result<Operation> {
        self.call(&paths::REPLACE_DRIVE, &[pool, &index.to_string()], &(), request).await
    }

    /// Starts the removal of a drive.
    pub async fn remove_drive(&self, pool: &str, index: u16) -> Result<Pool> {
        self.call(&paths::REMOVE_DRIVE, &[pool, &index.to_string()], &(), &()).await
    }

    /// Cancels the removal of a drive.
    pub async fn cancel_remove_drive(&self, pool: &str, index: u16) -> Result<Pool> {
        self.call(&paths::CANCEL_REMOVE_DRIVE, &[pool, &index.to_string()], &(), &()).await
    }

    /// Returns a missing or failed drive to its pool.
    pub async fn return_drive(&self, pool: &str, index: u16, request: &ReturnDrive) -> Result<Pool> {
        self.call(&paths::RETURN_DRIVE, &[pool, &index.to_string()], &(), request).await
    }

    /// Returns the type, use and contents of drives.
    pub async fn identify_drives(&self, request: &IdentifyDrives) -> Result<Vec<IdentifiedDrive>> {
        self.call(&paths::IDENTIFY_DRIVES, &[], &(), request).await
    }

    /// Lists the volumes and snapshots of a pool.
    pub async fn list_volumes(&self, pool: &str) -> Result<Vec<Volume>> {
        self.call(&paths::LIST_VOLUMES, &[pool], &(), &()).await
    }

    /// Returns a volume or snapshot.
    pub async fn get_volume(&self, name: &VolumeName) -> Result<Volume> {
        self.call(&paths::GET_VOLUME, &[&name.pool, &name.volume], &(), &()).await
    }

    /// Creates a volume.
    pub async fn create_volume(&self, pool: &str, request: &CreateVolume) -> Result<Volume> {
        self.call(&paths::CREATE_VOLUME, &[pool], &(), request).await
    }

    /// Creates a volume from an image file on the daemon's host.
    pub async fn import_image(&self, pool: &str, request: &ImportImage) -> Result<Operation> {
        self.call(&paths::IMPORT_IMAGE, &[pool], &(), request).await
    }

    /// Writes a volume or snapshot to an image file on the daemon's host.
    pub async fn export_image(&self, name: &VolumeName, request: &ExportImage) -> Result<Operation> {
        self.call(&paths::EXPORT_IMAGE, &[&name.pool, &name.volume], &(), request).await
    }

    /// Changes the size of a volume.
    pub async fn resize_volume(&self, name: &VolumeName, request: &ResizeVolume) -> Result<Volume> {
        self.call(&paths::RESIZE_VOLUME, &[&name.pool, &name.volume], &(), request).await
    }

    /// Sets the QoS limits of a volume.
    pub async fn set_volume_qos(&self, name: &VolumeName, request: &QosLimits) -> Result<Volume> {
        self.call(&paths::SET_VOLUME_QOS, &[&name.pool, &name.volume], &(), request).await
    }

    /// Deletes a volume or snapshot and its data.
    pub async fn delete_volume(&self, name: &VolumeName) -> Result<Operation> {
        self.call(&paths::DELETE_VOLUME, &[&name.pool, &name.volume], &(), &()).await
    }

    /// Creates a snapshot of a volume.
    pub async fn create_snapshot(&self, name: &VolumeName, request: &CreateSnapshot) -> Result<Volume> {
        self.call(&paths::CREATE_SNAPSHOT, &[&name.pool, &name.volume], &(), request).await
    }

    /// Creates snapshots of several volumes of a pool at one point in time.
    pub async fn create_snapshots(&self, pool: &str, request: &CreateSnapshots) -> Result<Vec<Volume>> {
        self.call(&paths::CREATE_SNAPSHOTS, &[pool], &(), request).await
    }

    /// Creates a volume from a snapshot.
    pub async fn clone_snapshot(&self, name: &VolumeName, request: &CloneSnapshot) -> Result<Volume> {
        self.call(&paths::CLONE_SNAPSHOT, &[&name.pool, &name.volume], &(), request).await
    }

    /// Rolls a volume back to the snapshot `name`.
    pub async fn rollback_volume(&self, name: &VolumeName, request: &RollbackVolume) -> Result<Volume> {
        self.call(&paths::ROLLBACK_VOLUME, &[&name.pool, &name.volume], &(), request).await
    }

    /// Counts the data of a volume or snapshot.
    pub async fn get_volume_usage(&self, name: &VolumeName) -> Result<VolumeUsage> {
        self.call(&paths::GET_VOLUME_USAGE, &[&name.pool, &name.volume], &(), &()).await
    }

    /// Returns a part of the difference between two volumes or snapshots.
    pub async fn get_volume_diff(&self, name: &VolumeName, query: &DiffQuery) -> Result<VolumeDiff> {
        self.call(&paths::GET_VOLUME_DIFF, &[&name.pool, &name.volume], query, &()).await
    }

    /// Lists the exports.
    pub async fn list_exports(&self) -> Result<Vec<Export>> {
        self.call(&paths::LIST_EXPORTS, &[], &(), &()).await
    }

    /// Exports a volume.
    pub async fn create_export(&self, request: &CreateExport) -> Result<Export> {
        self.call(&paths::CREATE_EXPORT, &[], &(), request).await
    }

    /// Deletes the export of a volume.
    pub async fn delete_export(&self, name: &VolumeName, query: &DeleteExportQuery) -> Result<()> {
        self.call(&paths::DELETE_EXPORT, &[&name.pool, &name.volume], query, &()).await
    }

    /// Lists the pools that serve S3.
    pub async fn list_s3(&self) -> Result<Vec<S3Service>> {
        self.call(&paths::LIST_S3, &[], &(), &()).await
    }

    /// Starts S3 on a pool.
    pub async fn start_s3(&self, pool: &str, request: &StartS3) -> Result<S3Service> {
        self.call(&paths::START_S3, &[pool], &(), request).await
    }

    /// Stops S3 on a pool.
    pub async fn stop_s3(&self, pool: &str) -> Result<()> {
        self.call(&paths::STOP_S3, &[pool], &(), &()).await
    }

    /// Lists the buckets of a pool.
    pub async fn list_buckets(&self, pool: &str) -> Result<Vec<Bucket>> {
        self.call(&paths::LIST_BUCKETS, &[pool], &(), &()).await
    }

    /// Lists objects of a bucket.
    pub async fn list_objects(&self, name: &VolumeName, query: &ObjectQuery) -> Result<ObjectPage> {
        self.call(&paths::LIST_OBJECTS, &[&name.pool, &name.volume], query, &()).await
    }

    /// Returns a bucket.
    pub async fn get_bucket(&self, name: &VolumeName) -> Result<Bucket> {
        self.call(&paths::GET_BUCKET, &[&name.pool, &name.volume], &(), &()).await
    }

    /// Creates a bucket.
    pub async fn create_bucket(&self, pool: &str, request: &CreateBucket) -> Result<Bucket> {
        self.call(&paths::CREATE_BUCKET, &[pool], &(), request).await
    }

    /// Changes the settings of a bucket.
    pub async fn change_bucket(&self, name: &VolumeName, request: &ChangeBucket) -> Result<Bucket> {
        self.call(&paths::CHANGE_BUCKET, &[&name.pool, &name.volume], &(), request).await
    }

    /// Deletes an empty bucket.
    pub async fn delete_bucket(&self, name: &VolumeName) -> Result<()> {
        self.call(&paths::DELETE_BUCKET, &[&name.pool, &name.volume], &(), &()).await
    }

    /// Lists the access keys.
    pub async fn list_keys(&self) -> Result<Vec<AccessKey>> {
        self.call(&paths::LIST_KEYS, &[], &(), &()).await
    }

    /// Creates an access key.
    pub async fn create_key(&self, request: &CreateKey) -> Result<AccessKey> {
        self.call(&paths::CREATE_KEY, &[], &(), request).await
    }

    /// Deletes an access key.
    pub async fn delete_key(&self, key: &str) -> Result<()> {
        self.call(&paths::DELETE_KEY, &[key], &(), &()).await
    }

    /// Lists the users of S3.
    pub async fn list_users(&self) -> Result<Vec<S3User>> {
        self.call(&paths::LIST_USERS, &[], &(), &()).await
    }

    /// Returns a user of S3.
    pub async fn get_user(&self, name: &str) -> Result<S3User> {
        self.call(&paths::GET_USER, &[name], &(), &()).await
    }

    /// Creates a user of S3.
    pub async fn create_user(&self, request: &CreateS3User) -> Result<S3User> {
        self.call(&paths::CREATE_USER, &[], &(), request).await
    }

    /// Changes a user of S3.
    pub async fn change_user(&self, name: &str, request: &ChangeS3User) -> Result<S3User> {
        self.call(&paths::CHANGE_USER, &[name], &(), request).await
    }

    /// Deletes a user of S3.
    pub async fn delete_user(&self, name: &str) -> Result<()> {
        self.call(&paths::DELETE_USER, &[name], &(), &()).await
    }

    /// Lists the clusters of the daemon's host.
    pub async fn list_clusters(&self) -> Result<Vec<Cluster>> {
        self.call(&paths::LIST_CLUSTERS, &[], &(), &()).await
    }

    /// Lists the users of the object gateways of a cluster.
    pub async fn list_cluster_users(&self, cluster: &str) -> Result<Vec<S3User>> {
        self.call(&paths::LIST_CLUSTER_USERS, &[cluster], &(), &()).await
    }

    /// Returns a user of the object gateways of a cluster.
    pub async fn get_cluster_user(&self, cluster: &str, name: &str) -> Result<S3User> {
        self.call(&paths::GET_CLUSTER_USER, &[cluster, name], &(), &()).await
    }

    /// Creates a user of the object gateways of a cluster.
    pub async fn create_cluster_user(&self, cluster: &str, request: &CreateS3User) -> Result<S3User> {
        self.call(&paths::CREATE_CLUSTER_USER, &[cluster], &(), request).await
    }

    /// Deletes a user of the object gateways of a cluster.
    pub async fn delete_cluster_user(&self, cluster: &str, name: &str) -> Result<()> {
        self.call(&paths::DELETE_CLUSTER_USER, &[cluster, name], &(), &()).await
    }

    /// Lists the access keys of the object gateways of a cluster.
    pub async fn list_cluster_keys(&self, cluster: &str) -> Result<Vec<AccessKey>> {
        self.call(&paths::LIST_CLUSTER_KEYS, &[cluster], &(), &()).await
    }

    /// Creates an access key of the object gateways of a cluster.
    pub async fn create_cluster_key(&self, cluster: &str, request: &CreateKey) -> Result<AccessKey> {
        self.call(&paths::CREATE_CLUSTER_KEY, &[cluster], &(), request).await
    }

    /// Deletes an access key of the object gateways of a cluster.
    pub async fn delete_cluster_key(&self, cluster: &str, key: &str) -> Result<()> {
        self.call(&paths::DELETE_CLUSTER_KEY, &[cluster, key], &(), &()).await
    }

    /// Lists the groups of S3.
    pub async fn list_groups(&self) -> Result<Vec<S3Group>> {
        self.call(&paths::LIST_GROUPS, &[], &(), &()).await
    }

    /// Returns a group of S3.
    pub async fn get_group(&self, name: &str) -> Result<S3Group> {
        self.call(&paths::GET_GROUP, &[name], &(), &()).await
    }

    /// Creates a group of S3.
    pub async fn create_group(&self, request: &CreateS3Group) -> Result<S3Group> {
        self.call(&paths::CREATE_GROUP, &[], &(), request).await
    }

    /// Changes a group of S3.
    pub async fn change_group(&self, name: &str, request: &ChangeS3Group) -> Result<S3Group> {
        self.call(&paths::CHANGE_GROUP, &[name], &(), request).await
    }

    /// Deletes a group of S3.
    pub async fn delete_group(&self, name: &str) -> Result<()> {
        self.call(&paths::DELETE_GROUP, &[name], &(), &()).await
    }

    /// Lists the policies of S3.
    pub async fn list_policies(&self) -> Result<Vec<S3Policy>> {
        self.call(&paths::LIST_POLICIES, &[], &(), &()).await
    }

    /// Returns a policy of S3.
    pub async fn get_policy(&self, name: &str) -> Result<S3Policy> {
        self.call(&paths::GET_POLICY, &[name], &(), &()).await
    }

    /// Creates a policy of S3.
    pub async fn create_policy(&self, request: &CreateS3Policy) -> Result<S3Policy> {
        self.call(&paths::CREATE_POLICY, &[], &(), request).await
    }

    /// Changes a policy of S3.
    pub async fn change_policy(&self, name: &str, request: &ChangeS3Policy) -> Result<S3Policy> {
        self.call(&paths::CHANGE_POLICY, &[name], &(), request).await
    }

    /// Deletes a policy of S3.
    pub async fn delete_policy(&self, name: &str) -> Result<()> {
        self.call(&paths::DELETE_POLICY, &[name], &(), &()).await
    }

    /// Lists the identity providers of S3.
    pub async fn list_providers(&self) -> Result<Vec<S3Provider>> {
        self.call(&paths::LIST_PROVIDERS, &[], &(), &()).await
    }

    /// Returns an identity provider of S3.
    pub async fn get_provider(&self, name: &str) -> Result<S3Provider> {
        self.call(&paths::GET_PROVIDER, &[name], &(), &()).await
    }

    /// Creates an identity provider of S3.
    pub async fn create_provider(&self, request: &CreateS3Provider) -> Result<S3Provider> {
        self.call(&paths::CREATE_PROVIDER, &[], &(), request).await
    }

    /// Changes an identity provider of S3.
    pub async fn change_provider(&self, name: &str, request: &ChangeS3Provider) -> Result<S3Provider> {
        self.call(&paths::CHANGE_PROVIDER, &[name], &(), request).await
    }

    /// Deletes an identity provider of S3.
    pub async fn delete_provider(&self, name: &str) -> Result<()> {
        self.call(&paths::DELETE_PROVIDER, &[name], &(), &()).await
    }

    /// Lists the roles of S3.
    pub async fn list_roles(&self) -> Result<Vec<S3Role>> {
        self.call(&paths::LIST_ROLES, &[], &(), &()).await
    }

    /// Returns a role of S3.
    pub async fn get_role(&self, name: &str) -> Result<S3Role> {
        self.call(&paths::GET_ROLE, &[name], &(), &()).await
    }

    /// Creates a role of S3.
    pub async fn create_role(&self, request: &CreateS3Role) -> Result<S3Role> {
        self.call(&paths::CREATE_ROLE, &[], &(), request).await
    }

    /// Changes a role of S3.
    pub async fn change_role(&self, name: &str, request: &ChangeS3Role) -> Result<S3Role> {
        self.call(&paths::CHANGE_ROLE, &[name], &(), request).await
    }

    /// Deletes a role of S3.
    pub async fn delete_role(&self, name: &str) -> Result<()> {
        self.call(&paths::DELETE_ROLE, &[name], &(), &()).await
    }

    /// Lists the webhooks of S3.
    pub async fn list_webhooks(&self) -> Result<Vec<Webhook>> {
        self.call(&paths::LIST_WEBHOOKS, &[], &(), &()).await
    }

    /// Returns a webhook of S3.
    pub async fn get_webhook(&self, name: &str) -> Result<Webhook> {
        self.call(&paths::GET_WEBHOOK, &[name], &(), &()).await
    }

    /// Creates a webhook of S3.
    pub async fn create_webhook(&self, request: &CreateWebhook) -> Result<Webhook> {
        self.call(&paths::CREATE_WEBHOOK, &[], &(), request).await
    }

    /// Changes a webhook of S3.
    pub async fn change_webhook(&self, name: &str, request: &ChangeWebhook) -> Result<Webhook> {
        self.call(&paths::CHANGE_WEBHOOK, &[name], &(), request).await
    }

    /// Deletes a webhook of S3.
    pub async fn delete_webhook(&self, name: &str) -> Result<()> {
        self.call(&paths::DELETE_WEBHOOK, &[name], &(), &()).await
    }

    /// Returns the name and role of this client.
    pub async fn get_identity(&self) -> Result<Identity> {
        self.call(&paths::GET_IDENTITY, &[], &(), &()).await
    }

    /// Lists the tokens.
    pub async fn list_tokens(&self) -> Result<Vec<Token>> {
        self.call(&paths::LIST_TOKENS, &[], &(), &()).await
    }

    /// Creates a token.
    pub async fn create_token(&self, request: &CreateToken) -> Result<CreatedToken> {
        self.call(&paths::CREATE_TOKEN, &[], &(), request).await
    }

    /// Deletes a token.
    pub async fn delete_token(&self, id: &str) -> Result<()> {
        self.call(&paths::DELETE_TOKEN, &[id], &(), &()).await
    }

    /// Lists the records of the audit log.
    pub async fn list_audit(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>> {
        self.call(&paths::LIST_AUDIT, &[], query, &()).await
    }

    /// Returns a volume or snapshot; `None` if its pool has none of that name.
    pub async fn find_volume(&self, name: &VolumeName) -> Result<Option<Volume>> {
        match self.get_volume(name).await {
            Ok(volume) => Ok(Some(volume)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // The error of a missing pool has the same kind.
                self.get_pool(&name.pool).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
