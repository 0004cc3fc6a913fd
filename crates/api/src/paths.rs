//! The endpoints of the API: one table that the daemon routes by, the client calls by, and the
//! OpenAPI document is made from.
//!
//! Each endpoint has a method, a path, and the types of its query, request body and response. To
//! add an endpoint, add a row to the table, a handler in `server` and a method to the client.

use std::marker::PhantomData;

use serde::Serialize;
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::types::{
    AccessKey, AddDrive, AuditQuery, AuditRecord, BenchmarkRun, Bucket, ChangeBucket, ChangeRebuild,
    ChangeS3Group, ChangeS3Policy, ChangeS3Provider, ChangeS3Role, ChangeS3User, ChangeScrub, ChangeWebhook,
    CloneSnapshot, ClosePool, Cluster, ClusterStatus, CreateBucket, CreateExport, CreateKey, CreatePool,
    CreateS3Group, CreateS3Policy, CreateS3Provider, CreateS3Role, CreateS3User, CreateSession,
    CreateSnapshot, CreateSnapshots, CreateToken, CreateVolume, CreateWebhook, CreatedToken, DaemonStatus,
    DeleteExportQuery, DiffQuery, ErrorResponse, Event, EventQuery, Export, ExportImage, HostMachine,
    IdentifiedDrive, IdentifyDrives, Identity, ImportImage, MachineConsole, MachineInput, ObjectPage,
    ObjectQuery, OpenPool, Operation, OperationQuery, Pool, QosLimits, ResizeVolume, ReturnDrive, Role,
    RollbackVolume, S3Group, S3Policy, S3Provider, S3Role, S3Service, S3User, StartS3, Token, Volume,
    VolumeDiff, VolumeUsage, Webhook,
};

/// Path of the OpenAPI document.
pub const OPENAPI: &str = "/v1/openapi.json";

/// Path of the live status: server-sent events of the type `status`, whose data is a
/// [`crate::types::LiveStatus`].
pub const LIVE: &str = "/v1/live";

/// Method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// An endpoint with query parameters `Q`, request body `B` and response body `R`; `()` stands for
/// none.
#[derive(Debug)]
pub struct Endpoint<Q, B, R> {
    /// Method of the request.
    pub method: Method,
    /// Path with placeholders in braces: `/v1/pools/{pool}`.
    pub path: &'static str,
    /// Role that it requires; `None` for an endpoint that anybody may use.
    pub role: Option<Role>,
    types: PhantomData<fn(Q, B) -> R>,
}

impl<Q, B, R> Endpoint<Q, B, R> {
    const fn new(method: Method, path: &'static str, role: Option<Role>) -> Self {
        Self { method, path, role, types: PhantomData }
    }

    /// Returns the path with `names` in place of the placeholders, in order.
    ///
    /// # Panics
    /// If the number of names differs from that of the placeholders.
    pub fn with(&self, names: &[&str]) -> String {
        let mut names = names.iter();
        let mut filled = String::new();
        for part in self.path.split_inclusive('/') {
            let (segment, slash) = part.strip_suffix('/').map_or((part, ""), |segment| (segment, "/"));
            match names.as_slice().first().filter(|_| segment.starts_with('{')) {
                Some(name) => filled.push_str(&encode_segment(name)),
                None => filled.push_str(segment),
            }
            if segment.starts_with('{') {
                assert!(names.next().is_some(), "{}: a name is missing", self.path);
            }
            filled.push_str(slash);
        }
        assert!(names.next().is_none(), "{}: too many names", self.path);
        filled
    }
}

/// Query parameters of an endpoint.
pub trait Query: Serialize {
    /// Returns their descriptions.
    fn parameters() -> Vec<Parameter>;
}

/// Body of a request or response.
pub trait Body {
    /// Returns its schema; `None` for an empty body.
    fn schema() -> Option<RefOr<Schema>>;

    /// Adds the schemas of the type and of its fields.
    fn add_schemas(schemas: &mut Vec<(String, RefOr<Schema>)>);
}

impl Query for () {
    fn parameters() -> Vec<Parameter> {
        Vec::new()
    }
}

impl Body for () {
    fn schema() -> Option<RefOr<Schema>> {
        None
    }

    fn add_schemas(_: &mut Vec<(String, RefOr<Schema>)>) {}
}

macro_rules! queries {
    ($($query:ty),+ $(,)?) => {
        $(impl Query for $query {
            fn parameters() -> Vec<Parameter> {
                <Self as IntoParams>::into_params(|| Some(ParameterIn::Query))
            }
        })+
    };
}

macro_rules! bodies {
    ($($body:ty),+ $(,)?) => {
        $(impl Body for $body {
            fn schema() -> Option<RefOr<Schema>> {
                Some(reference::<Self>())
            }

            fn add_schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                schemas.push((<Self as ToSchema>::name().into_owned(), <Self as PartialSchema>::schema()));
                <Self as ToSchema>::schemas(schemas);
            }
        }

        impl Body for Vec<$body> {
            fn schema() -> Option<RefOr<Schema>> {
                let array = utoipa::openapi::ArrayBuilder::new().items(reference::<$body>());
                Some(RefOr::T(Schema::Array(array.build())))
            }

            fn add_schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                <$body as Body>::add_schemas(schemas);
            }
        })+
    };
}

fn reference<T: ToSchema>() -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name(T::name()))
}

queries!(AuditQuery, DeleteExportQuery, DiffQuery, EventQuery, ObjectQuery, OperationQuery);

bodies!(
    AccessKey,
    ChangeS3Group,
    ChangeS3Policy,
    ChangeS3Provider,
    ChangeS3Role,
    ChangeS3User,
    CreateS3Group,
    CreateS3Policy,
    CreateS3Provider,
    CreateS3Role,
    CreateS3User,
    ChangeWebhook,
    CreateWebhook,
    S3Group,
    S3Policy,
    S3Provider,
    S3Role,
    S3User,
    Webhook,
    AddDrive,
    Bucket,
    AuditRecord,
    CreateSession,
    CreateToken,
    CreatedToken,
    Identity,
    Token,
    ChangeBucket,
    ChangeRebuild,
    ChangeScrub,
    CloneSnapshot,
    ClosePool,
    CreateBucket,
    CreateExport,
    CreateKey,
    CreatePool,
    CreateSnapshot,
    CreateSnapshots,
    CreateVolume,
    DaemonStatus,
    ErrorResponse,
    Event,
    Export,
    ExportImage,
    IdentifiedDrive,
    IdentifyDrives,
    ImportImage,
    OpenPool,
    Operation,
    Pool,
    QosLimits,
    ResizeVolume,
    ReturnDrive,
    RollbackVolume,
    BenchmarkRun,
    Cluster,
    ClusterStatus,
    HostMachine,
    MachineConsole,
    MachineInput,
    ObjectPage,
    S3Service,
    StartS3,
    Volume,
    VolumeDiff,
    VolumeUsage,
);

/// A row of the table without its types.
pub struct EndpointRow {
    /// Method of the request.
    pub method: Method,
    /// Path with placeholders.
    pub path: &'static str,
    /// Role that the endpoint requires; `None` for an endpoint that anybody may use.
    pub role: Option<Role>,
    /// Name of the endpoint, unique in the API.
    pub operation_id: &'static str,
    /// Group of the endpoint.
    pub tag: &'static str,
    /// Description; the first line is the summary.
    pub doc: &'static str,
    /// Status of a successful response.
    pub status: u16,
    pub(crate) parameters: fn() -> Vec<Parameter>,
    pub(crate) request: fn() -> Option<RefOr<Schema>>,
    pub(crate) response: fn() -> Option<RefOr<Schema>>,
    pub(crate) add_schemas: fn(&mut Vec<(String, RefOr<Schema>)>),
}

/// The role that an endpoint requires: the named one, or else `Viewer` to read and `Operator` to
/// change something.
macro_rules! required_role {
    ($method:ident Anybody) => {
        None
    };
    ($method:ident $role:ident) => {
        Some(Role::$role)
    };
    (Get) => {
        Some(Role::Viewer)
    };
    ($method:ident) => {
        Some(Role::Operator)
    };
}

macro_rules! endpoints {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident = $tag:ident $id:ident: $method:ident $path:literal
            ($query:ty, $body:ty) -> $status:literal $response:ty $(, $role:ident)?;
    )+) => {
        $(
            $(#[doc = $doc])+
            pub const $name: Endpoint<$query, $body, $response> =
                Endpoint::new(Method::$method, $path, required_role!($method $($role)?));
        )+

        /// All endpoints.
        pub const ALL: &[EndpointRow] = &[$(EndpointRow {
            method: Method::$method,
            path: $path,
            role: required_role!($method $($role)?),
            operation_id: stringify!($id),
            tag: stringify!($tag),
            doc: concat!($($doc, "\n"),+),
            status: $status,
            parameters: <$query as Query>::parameters,
            request: <$body as Body>::schema,
            response: <$response as Body>::schema,
            add_schemas: |schemas| {
                <$body as Body>::add_schemas(schemas);
                <$response as Body>::add_schemas(schemas);
            },
        }),+];
    };
}

endpoints! {
    /// Returns the status of the daemon.
    GET_DAEMON = daemon get_daemon: Get "/v1/daemon" ((), ()) -> 200 DaemonStatus;

    /// Lists the running operations and the last ones that ended.
    LIST_OPERATIONS = operations list_operations: Get "/v1/operations" ((), ()) -> 200 Vec<Operation>;

    /// Returns an operation.
    ///
    /// With `wait`, responds when the operation changes or the time is over.
    GET_OPERATION = operations get_operation: Get "/v1/operations/{id}" (OperationQuery, ()) -> 200 Operation;

    /// Cancels an operation, which then rolls its changes back.
    ///
    /// Responds before the operation has ended. Only operations with `cancellable` can be
    /// cancelled.
    CANCEL_OPERATION = operations cancel_operation: Delete "/v1/operations/{id}" ((), ()) -> 202 Operation;

    /// Lists the pools.
    LIST_POOLS = pools list_pools: Get "/v1/pools" ((), ()) -> 200 Vec<Pool>;

    /// Returns a pool.
    GET_POOL = pools get_pool: Get "/v1/pools/{pool}" ((), ()) -> 200 Pool;

    /// Creates a pool and opens it.
    CREATE_POOL = pools create_pool: Post "/v1/pools" ((), CreatePool) -> 202 Operation, Admin;

    /// Opens a pool.
    OPEN_POOL = pools open_pool: Post "/v1/pools/{pool}/open" ((), OpenPool) -> 202 Operation, Admin;

    /// Closes a pool.
    ///
    /// The pool stays closed when the daemon is restarted.
    CLOSE_POOL = pools close_pool: Post "/v1/pools/{pool}/close" ((), ClosePool) -> 202 Operation, Admin;

    /// Destroys an open pool and all data in it.
    DESTROY_POOL = pools destroy_pool: Delete "/v1/pools/{pool}" ((), ()) -> 202 Operation, Admin;

    /// Lists the events of a pool in order.
    LIST_EVENTS = pools list_events: Get "/v1/pools/{pool}/events" (EventQuery, ()) -> 200 Vec<Event>;

    /// Pauses, resumes or rate-limits the rebuild of a pool, until the pool is closed.
    CHANGE_REBUILD = pools change_rebuild: Patch "/v1/pools/{pool}/rebuild" ((), ChangeRebuild) -> 200 Pool;

    /// Starts a scrub of a pool in the background.
    ///
    /// Does nothing if a scrub is in progress.
    START_SCRUB = pools start_scrub: Post "/v1/pools/{pool}/scrub" ((), ()) -> 200 Pool;

    /// Pauses, resumes or rate-limits scrubbing, or sets its interval.
    CHANGE_SCRUB = pools change_scrub: Patch "/v1/pools/{pool}/scrub" ((), ChangeScrub) -> 200 Pool;

    /// Cancels the scrub in progress, if there is one.
    CANCEL_SCRUB = pools cancel_scrub: Delete "/v1/pools/{pool}/scrub" ((), ()) -> 200 Pool;

    /// Adds a drive to a pool. Its space is available at once.
    ADD_DRIVE = drives add_drive: Post "/v1/pools/{pool}/drives" ((), AddDrive) -> 202 Operation, Admin;

    /// Takes a drive out of use as if it had failed.
    FAIL_DRIVE = drives fail_drive: Post "/v1/pools/{pool}/drives/{index}/fail" ((), ()) -> 200 Pool;

    /// Adds a drive to a pool in place of another one.
    ///
    /// The old drive is removed once its data is on other drives. The operation ends when the new
    /// drive is part of the pool; the pool shows the progress of the removal.
    REPLACE_DRIVE = drives replace_drive: Post "/v1/pools/{pool}/drives/{index}/replace" ((), AddDrive) -> 202 Operation, Admin;

    /// Removes a drive from a pool.
    ///
    /// Its data is migrated to the other drives first; the pool shows the progress.
    REMOVE_DRIVE = drives remove_drive: Post "/v1/pools/{pool}/drives/{index}/remove" ((), ()) -> 200 Pool;

    /// Cancels the removal of a drive. Migrated data stays on the other drives.
    CANCEL_REMOVE_DRIVE = drives cancel_remove_drive: Post "/v1/pools/{pool}/drives/{index}/remove/cancel" ((), ()) -> 200 Pool;

    /// Returns a missing or failed drive to its pool. Only the writes that it missed are rebuilt.
    RETURN_DRIVE = drives return_drive: Post "/v1/pools/{pool}/drives/{index}/return" ((), ReturnDrive) -> 200 Pool;

    /// Returns the type, use and contents of drives. Writes nothing.
    IDENTIFY_DRIVES = drives identify_drives: Post "/v1/drives/identify" ((), IdentifyDrives) -> 200 Vec<IdentifiedDrive>, Admin;

    /// Lists the volumes and snapshots of a pool.
    LIST_VOLUMES = volumes list_volumes: Get "/v1/pools/{pool}/volumes" ((), ()) -> 200 Vec<Volume>;

    /// Returns a volume or snapshot.
    GET_VOLUME = volumes get_volume: Get "/v1/pools/{pool}/volumes/{volume}" ((), ()) -> 200 Volume;

    /// Creates a volume.
    CREATE_VOLUME = volumes create_volume: Post "/v1/pools/{pool}/volumes" ((), CreateVolume) -> 201 Volume;

    /// Creates a volume from an image file on the daemon's host.
    ///
    /// A failed or cancelled import deletes the volume.
    IMPORT_IMAGE = volumes import_image: Post "/v1/pools/{pool}/import" ((), ImportImage) -> 202 Operation, Admin;

    /// Writes a volume or snapshot to an image file on the daemon's host.
    ///
    /// A volume is copied from a temporary snapshot. The file gets its name when it is complete.
    EXPORT_IMAGE = volumes export_image: Post "/v1/pools/{pool}/volumes/{volume}/export-image" ((), ExportImage) -> 202 Operation, Admin;

    /// Changes the size of a volume.
    RESIZE_VOLUME = volumes resize_volume: Patch "/v1/pools/{pool}/volumes/{volume}" ((), ResizeVolume) -> 200 Volume;

    /// Sets the QoS limits of a volume. They apply at once to the sum of all its exports.
    SET_VOLUME_QOS = volumes set_volume_qos: Put "/v1/pools/{pool}/volumes/{volume}/qos" ((), QosLimits) -> 200 Volume;

    /// Deletes a volume or snapshot and its data.
    DELETE_VOLUME = volumes delete_volume: Delete "/v1/pools/{pool}/volumes/{volume}" ((), ()) -> 202 Operation;

    /// Creates a snapshot of a volume.
    ///
    /// The snapshot contains all writes acknowledged before the request and no write that began
    /// after the response, durably.
    CREATE_SNAPSHOT = snapshots create_snapshot: Post "/v1/pools/{pool}/volumes/{volume}/snapshots" ((), CreateSnapshot) -> 201 Volume;

    /// Creates snapshots of several volumes of a pool at one point in time.
    ///
    /// Each contains everything that was acknowledged, on any of the volumes, before a write that
    /// one of them contains began. All of them are created or none. Not for clusters.
    CREATE_SNAPSHOTS = snapshots create_snapshots: Post "/v1/pools/{pool}/snapshots" ((), CreateSnapshots) -> 201 Vec<Volume>;

    /// Creates a volume from a snapshot and shares the snapshot's data.
    CLONE_SNAPSHOT = snapshots clone_snapshot: Post "/v1/pools/{pool}/volumes/{volume}/clone" ((), CloneSnapshot) -> 201 Volume;

    /// Rolls a volume back to the snapshot that `{volume}` names.
    ///
    /// Data that was written after the snapshot is lost unless a later snapshot contains it.
    ROLLBACK_VOLUME = snapshots rollback_volume: Post "/v1/pools/{pool}/volumes/{volume}/rollback" ((), RollbackVolume) -> 200 Volume;

    /// Counts the data of a volume or snapshot.
    ///
    /// Reads the map of the volume, which takes time for a large volume.
    GET_VOLUME_USAGE = snapshots get_volume_usage: Get "/v1/pools/{pool}/volumes/{volume}/usage" ((), ()) -> 200 VolumeUsage;

    /// Returns the ranges in which a volume or snapshot differs from another one of the same
    /// origin, or holds data.
    ///
    /// Ranges are whole blocks. Long results come in parts.
    GET_VOLUME_DIFF = snapshots get_volume_diff: Get "/v1/pools/{pool}/volumes/{volume}/diff" (DiffQuery, ()) -> 200 VolumeDiff;

    /// Lists the exports.
    LIST_EXPORTS = exports list_exports: Get "/v1/exports" ((), ()) -> 200 Vec<Export>;

    /// Exports a volume.
    CREATE_EXPORT = exports create_export: Post "/v1/exports" ((), CreateExport) -> 201 Export;

    /// Deletes the export of a volume.
    ///
    /// The deletion disconnects NBD clients and virtual machines. Without `force`, the request
    /// fails while the daemon's host uses the export, as an open file or a mounted device.
    DELETE_EXPORT = exports delete_export: Delete "/v1/exports/{pool}/{volume}" (DeleteExportQuery, ()) -> 204 ();

    /// Lists the pools that serve S3.
    LIST_S3 = s3 list_s3: Get "/v1/s3" ((), ()) -> 200 Vec<S3Service>;

    /// Starts S3 on a pool. The service starts again when the pool is opened.
    START_S3 = s3 start_s3: Post "/v1/pools/{pool}/s3" ((), StartS3) -> 201 S3Service;

    /// Stops S3 on a pool. Its objects stay.
    STOP_S3 = s3 stop_s3: Delete "/v1/pools/{pool}/s3" ((), ()) -> 204 ();

    /// Lists the buckets of a pool that serves S3, or of a cluster with object gateways.
    LIST_BUCKETS = s3 list_buckets: Get "/v1/pools/{pool}/buckets" ((), ()) -> 200 Vec<Bucket>;

    /// Returns a bucket.
    GET_BUCKET = s3 get_bucket: Get "/v1/pools/{pool}/buckets/{bucket}" ((), ()) -> 200 Bucket;

    /// Creates a bucket.
    CREATE_BUCKET = s3 create_bucket: Post "/v1/pools/{pool}/buckets" ((), CreateBucket) -> 201 Bucket;

    /// Changes the settings of a bucket.
    CHANGE_BUCKET = s3 change_bucket: Patch "/v1/pools/{pool}/buckets/{bucket}" ((), ChangeBucket) -> 200 Bucket;

    /// Deletes an empty bucket.
    DELETE_BUCKET = s3 delete_bucket: Delete "/v1/pools/{pool}/buckets/{bucket}" ((), ()) -> 204 ();

    /// Lists the objects of a bucket of a pool by key, without older versions.
    LIST_OBJECTS = s3 list_objects: Get "/v1/pools/{pool}/buckets/{bucket}/objects" (ObjectQuery, ()) -> 200 ObjectPage;

    /// Lists the access keys of S3 clients, without their secrets.
    LIST_KEYS = s3 list_keys: Get "/v1/keys" ((), ()) -> 200 Vec<AccessKey>, Admin;

    /// Creates an access key. Only this response contains the secret.
    CREATE_KEY = s3 create_key: Post "/v1/keys" ((), CreateKey) -> 201 AccessKey, Admin;

    /// Deletes an access key. Requests with it fail from then on.
    DELETE_KEY = s3 delete_key: Delete "/v1/keys/{key}" ((), ()) -> 204 (), Admin;

    /// Lists the users of S3.
    LIST_USERS = s3 list_users: Get "/v1/users" ((), ()) -> 200 Vec<S3User>, Admin;

    /// Returns a user of S3.
    GET_USER = s3 get_user: Get "/v1/users/{user}" ((), ()) -> 200 S3User, Admin;

    /// Creates a user of S3.
    CREATE_USER = s3 create_user: Post "/v1/users" ((), CreateS3User) -> 201 S3User, Admin;

    /// Changes the policies or groups of a user of S3. Its next requests are subject to the change.
    CHANGE_USER = s3 change_user: Patch "/v1/users/{user}" ((), ChangeS3User) -> 200 S3User, Admin;

    /// Deletes a user and its access keys.
    DELETE_USER = s3 delete_user: Delete "/v1/users/{user}" ((), ()) -> 204 (), Admin;

    /// Lists the groups of S3.
    LIST_GROUPS = s3 list_groups: Get "/v1/groups" ((), ()) -> 200 Vec<S3Group>, Admin;

    /// Returns a group of S3.
    GET_GROUP = s3 get_group: Get "/v1/groups/{group}" ((), ()) -> 200 S3Group, Admin;

    /// Creates a group of S3.
    CREATE_GROUP = s3 create_group: Post "/v1/groups" ((), CreateS3Group) -> 201 S3Group, Admin;

    /// Changes a group of S3. The next requests of its users are subject to the change.
    CHANGE_GROUP = s3 change_group: Patch "/v1/groups/{group}" ((), ChangeS3Group) -> 200 S3Group, Admin;

    /// Deletes a group without users.
    DELETE_GROUP = s3 delete_group: Delete "/v1/groups/{group}" ((), ()) -> 204 (), Admin;

    /// Lists the policies of S3.
    LIST_POLICIES = s3 list_policies: Get "/v1/policies" ((), ()) -> 200 Vec<S3Policy>, Admin;

    /// Returns a policy of S3.
    GET_POLICY = s3 get_policy: Get "/v1/policies/{policy}" ((), ()) -> 200 S3Policy, Admin;

    /// Creates a policy of S3.
    CREATE_POLICY = s3 create_policy: Post "/v1/policies" ((), CreateS3Policy) -> 201 S3Policy, Admin;

    /// Changes a policy of S3. The next requests of its users are subject to the change.
    CHANGE_POLICY = s3 change_policy: Patch "/v1/policies/{policy}" ((), ChangeS3Policy) -> 200 S3Policy, Admin;

    /// Deletes a policy that no user or group has.
    DELETE_POLICY = s3 delete_policy: Delete "/v1/policies/{policy}" ((), ()) -> 204 (), Admin;

    /// Lists the identity providers of S3.
    LIST_PROVIDERS = s3 list_providers: Get "/v1/providers" ((), ()) -> 200 Vec<S3Provider>, Admin;

    /// Returns an identity provider of S3.
    GET_PROVIDER = s3 get_provider: Get "/v1/providers/{provider}" ((), ()) -> 200 S3Provider, Admin;

    /// Creates an identity provider of S3.
    CREATE_PROVIDER = s3 create_provider: Post "/v1/providers" ((), CreateS3Provider) -> 201 S3Provider, Admin;

    /// Changes an identity provider of S3. Its keys are fetched again for the next token.
    CHANGE_PROVIDER = s3 change_provider: Patch "/v1/providers/{provider}" ((), ChangeS3Provider) -> 200 S3Provider, Admin;

    /// Deletes an identity provider without roles.
    DELETE_PROVIDER = s3 delete_provider: Delete "/v1/providers/{provider}" ((), ()) -> 204 (), Admin;

    /// Lists the roles of S3.
    LIST_ROLES = s3 list_roles: Get "/v1/roles" ((), ()) -> 200 Vec<S3Role>, Admin;

    /// Returns a role of S3.
    GET_ROLE = s3 get_role: Get "/v1/roles/{role}" ((), ()) -> 200 S3Role, Admin;

    /// Creates a role of S3.
    CREATE_ROLE = s3 create_role: Post "/v1/roles" ((), CreateS3Role) -> 201 S3Role, Admin;

    /// Changes a role of S3.
    CHANGE_ROLE = s3 change_role: Patch "/v1/roles/{role}" ((), ChangeS3Role) -> 200 S3Role, Admin;

    /// Deletes a role of S3 and ends its sessions.
    DELETE_ROLE = s3 delete_role: Delete "/v1/roles/{role}" ((), ()) -> 204 (), Admin;

    /// Lists the webhooks of S3 with the events that wait for them.
    LIST_WEBHOOKS = s3 list_webhooks: Get "/v1/webhooks" ((), ()) -> 200 Vec<Webhook>, Admin;

    /// Returns a webhook of S3 with the events that wait for it.
    GET_WEBHOOK = s3 get_webhook: Get "/v1/webhooks/{webhook}" ((), ()) -> 200 Webhook, Admin;

    /// Creates a webhook of S3.
    CREATE_WEBHOOK = s3 create_webhook: Post "/v1/webhooks" ((), CreateWebhook) -> 201 Webhook, Admin;

    /// Changes a webhook of S3. The next attempts of deliveries are subject to the change.
    CHANGE_WEBHOOK = s3 change_webhook: Patch "/v1/webhooks/{webhook}" ((), ChangeWebhook) -> 200 Webhook, Admin;

    /// Deletes a webhook that no bucket names, and the events that wait for it.
    DELETE_WEBHOOK = s3 delete_webhook: Delete "/v1/webhooks/{webhook}" ((), ()) -> 204 (), Admin;

    /// Lists the virtual machines of the daemon's host.
    LIST_MACHINES = host list_machines: Get "/v1/machines" ((), ()) -> 200 Vec<HostMachine>;

    /// Opens the serial console of a machine.
    ///
    /// `GET /v1/machines/{machine}/console/{console}/output` then returns its output as
    /// server-sent events, whose data are JSON strings, until one of the sides ends it. A machine
    /// serves one console at a time.
    OPEN_CONSOLE = host open_console: Post "/v1/machines/{machine}/console" ((), ()) -> 201 MachineConsole;

    /// Sends characters to an open serial console.
    SEND_INPUT = host send_input: Post "/v1/machines/{machine}/console/{console}/input" ((), MachineInput) -> 204 ();

    /// Lists the Ceph clusters that the daemon's host has deployed or adopted.
    LIST_CLUSTERS = clusters list_clusters: Get "/v1/clusters" ((), ()) -> 200 Vec<Cluster>;

    /// Returns the status of a cluster.
    ///
    /// The response to a cluster without an answer has the health `unreachable`, after up to 20
    /// seconds. Requests within two seconds share a response.
    GET_CLUSTER = clusters get_cluster: Get "/v1/clusters/{cluster}" ((), ()) -> 200 ClusterStatus;

    /// Lists the users of the object gateways of a cluster.
    LIST_CLUSTER_USERS = clusters list_cluster_users: Get "/v1/clusters/{cluster}/users" ((), ()) -> 200 Vec<S3User>, Admin;

    /// Returns a user of the object gateways of a cluster.
    GET_CLUSTER_USER = clusters get_cluster_user: Get "/v1/clusters/{cluster}/users/{user}" ((), ()) -> 200 S3User, Admin;

    /// Creates a user of the object gateways of a cluster, without access keys.
    ///
    /// The gateways have no policies and groups of users: both lists must be empty.
    CREATE_CLUSTER_USER = clusters create_cluster_user: Post "/v1/clusters/{cluster}/users" ((), CreateS3User) -> 201 S3User, Admin;

    /// Deletes a user of the object gateways of a cluster and its access keys. A user that owns
    /// buckets is not deleted.
    DELETE_CLUSTER_USER = clusters delete_cluster_user: Delete "/v1/clusters/{cluster}/users/{user}" ((), ()) -> 204 (), Admin;

    /// Lists the access keys of the object gateways of a cluster, without their secrets.
    LIST_CLUSTER_KEYS = clusters list_cluster_keys: Get "/v1/clusters/{cluster}/keys" ((), ()) -> 200 Vec<AccessKey>, Admin;

    /// Creates an access key of the object gateways of a cluster. Only this response contains the
    /// secret.
    ///
    /// Keys of the gateways do not expire: `valid_s` must be absent.
    CREATE_CLUSTER_KEY = clusters create_cluster_key: Post "/v1/clusters/{cluster}/keys" ((), CreateKey) -> 201 AccessKey, Admin;

    /// Deletes an access key of the object gateways of a cluster. Requests with it fail from then
    /// on.
    DELETE_CLUSTER_KEY = clusters delete_cluster_key: Delete "/v1/clusters/{cluster}/keys/{key}" ((), ()) -> 204 (), Admin;

    /// Lists the stored benchmark runs of the daemon's host.
    ///
    /// `GET /v1/runs/{run}/report` returns the report of a run as an HTML page.
    LIST_RUNS = host list_runs: Get "/v1/runs" ((), ()) -> 200 Vec<BenchmarkRun>;

    /// Returns the name and role of the client.
    GET_IDENTITY = access get_identity: Get "/v1/access/self" ((), ()) -> 200 Identity;

    /// Begins the session of a browser. The response sets a cookie.
    ///
    /// Requests with the cookie that change something also need the header `X-CSRF-Token`.
    CREATE_SESSION = access create_session: Post "/v1/access/session" ((), CreateSession) -> 201 Identity, Anybody;

    /// Ends the session of the browser.
    DELETE_SESSION = access delete_session: Delete "/v1/access/session" ((), ()) -> 204 (), Viewer;

    /// Lists the tokens, without their secrets.
    LIST_TOKENS = access list_tokens: Get "/v1/access/tokens" ((), ()) -> 200 Vec<Token>, Admin;

    /// Creates a token.
    CREATE_TOKEN = access create_token: Post "/v1/access/tokens" ((), CreateToken) -> 201 CreatedToken, Admin;

    /// Deletes a token. Sessions that began with it end.
    DELETE_TOKEN = access delete_token: Delete "/v1/access/tokens/{token}" ((), ()) -> 204 (), Admin;

    /// Lists the requests to change something, with their results, the oldest first.
    LIST_AUDIT = access list_audit: Get "/v1/access/audit" (AuditQuery, ()) -> 200 Vec<AuditRecord>, Admin;
}

/// Returns a name percent-encoded as one segment of a path.
pub fn encode_segment(name: &str) -> String {
    let encoded = percent_encode(name);
    // HTTP software resolves segments of one or two dots.
    if encoded.bytes().all(|byte| byte == b'.') { encoded.replace('.', "%2E") } else { encoded }
}

/// Returns a text with all bytes but unreserved characters percent-encoded.
pub(crate) fn percent_encode(text: &str) -> String {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte| if unreserved(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_as_one_segment() {
        for (name, encoded) in
            [("fast", "fast"), ("a/b", "a%2Fb"), ("..", "%2E%2E"), ("ü ?", "%C3%BC%20%3F"), ("a.b", "a.b")]
        {
            assert_eq!(encode_segment(name), encoded);
        }
    }

    #[test]
    fn placeholders_are_filled_in_order() {
        assert_eq!(LIST_POOLS.with(&[]), "/v1/pools");
        assert_eq!(GET_POOL.with(&["{x}"]), "/v1/pools/%7Bx%7D");
        assert_eq!(CANCEL_REMOVE_DRIVE.with(&["fast", "3"]), "/v1/pools/fast/drives/3/remove/cancel");
        assert_eq!(DELETE_EXPORT.with(&["a/b", "c@d"]), "/v1/exports/a%2Fb/c%40d");
    }

    #[test]
    #[should_panic(expected = "a name is missing")]
    fn a_missing_name_is_a_bug() {
        let _ = DELETE_EXPORT.with(&["fast"]);
    }

    #[test]
    fn endpoints_that_change_something_require_at_least_an_operator() {
        for row in ALL {
            let at_least = if row.method == Method::Get { Role::Viewer } else { Role::Operator };
            // Everybody may begin a session, and end the own one.
            let is_session = row.path == CREATE_SESSION.path;
            assert!(is_session || row.role >= Some(at_least), "{}", row.operation_id);
        }
        assert_eq!((GET_POOL.role, DELETE_VOLUME.role), (Some(Role::Viewer), Some(Role::Operator)));
        assert_eq!((DESTROY_POOL.role, CREATE_SESSION.role), (Some(Role::Admin), None));
    }

    #[test]
    fn methods_and_paths_are_unique() {
        for (number, row) in ALL.iter().enumerate() {
            assert!(row.path.starts_with("/v1/"), "{}", row.path);
            let same = |other: &&EndpointRow| (other.method, other.path) == (row.method, row.path);
            assert!(!ALL.iter().skip(number + 1).any(|other| same(&other)), "{}", row.path);
        }
    }
}
