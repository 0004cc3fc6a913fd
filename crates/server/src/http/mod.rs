//! The API: HTTP over a Unix socket, and HTTPS, with JSON bodies, under `/v1`.
//!
//! Owns the mapping of the endpoints in [`api::paths`] to handlers, and the form of requests and
//! responses. Invariant: every response is JSON, and every error is an
//! [`api::types::ErrorResponse`]. Must not know the implementation of any operation.

mod access;
mod audit;
mod authentication;
mod bind;
mod console;
mod daemon;
mod drives;
mod events;
mod exports;
mod extract;
mod fallback;
mod gateways;
mod host;
mod images;
mod live;
mod metrics;
mod objects;
mod operations;
mod places;
mod pools;
mod roles;
mod scrub;
mod sender;
mod snapshots;
mod socket;
mod tls;
mod users;
mod volumes;
mod webhooks;

use std::sync::Arc;

use api::paths::{self, Endpoint};
use api::types::Role;
use axum::Router;
use axum::extract::Request;
use axum::extract::connect_info::IntoMakeServiceWithConnectInfo;
use axum::handler::Handler;
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, get, on};

pub(crate) use bind::{bind_tcp, bound_addresses};
pub(crate) use metrics::metrics_router;
pub(crate) use sender::Sender;
pub(crate) use socket::ApiSocket;
pub(crate) use tls::RemoteSockets;

use crate::services::Services;
use fallback::{no_method, no_route};

/// The routes as a service that knows the sender of each request.
pub(crate) type ApiService = IntoMakeServiceWithConnectInfo<Router, Sender>;

/// Returns the service of all listeners of the API.
pub(crate) fn service(services: Arc<Services>) -> ApiService {
    router(services).into_make_service_with_connect_info()
}

/// Returns the routes with their handlers.
fn router(services: Arc<Services>) -> Router {
    Routes(console_routes())
        .on(&paths::GET_DAEMON, daemon::get)
        .on(&paths::LIST_OPERATIONS, operations::list)
        .on(&paths::GET_OPERATION, operations::get)
        .on(&paths::CANCEL_OPERATION, operations::cancel)
        .on(&paths::LIST_POOLS, pools::list)
        .on(&paths::GET_POOL, pools::get)
        .on(&paths::CREATE_POOL, pools::create)
        .on(&paths::OPEN_POOL, pools::open)
        .on(&paths::CLOSE_POOL, pools::close)
        .on(&paths::DESTROY_POOL, pools::destroy)
        .on(&paths::LIST_EVENTS, events::list)
        .on(&paths::CHANGE_REBUILD, pools::change_rebuild)
        .on(&paths::START_SCRUB, scrub::start)
        .on(&paths::CHANGE_SCRUB, scrub::change)
        .on(&paths::CANCEL_SCRUB, scrub::cancel)
        .on(&paths::ADD_DRIVE, drives::add)
        .on(&paths::FAIL_DRIVE, drives::fail)
        .on(&paths::REPLACE_DRIVE, drives::replace)
        .on(&paths::REMOVE_DRIVE, drives::remove)
        .on(&paths::CANCEL_REMOVE_DRIVE, drives::cancel_remove)
        .on(&paths::RETURN_DRIVE, drives::return_to_pool)
        .on(&paths::IDENTIFY_DRIVES, drives::identify)
        .on(&paths::LIST_VOLUMES, volumes::list)
        .on(&paths::GET_VOLUME, volumes::get)
        .on(&paths::CREATE_VOLUME, volumes::create)
        .on(&paths::IMPORT_IMAGE, images::import)
        .on(&paths::EXPORT_IMAGE, images::export)
        .on(&paths::RESIZE_VOLUME, volumes::resize)
        .on(&paths::SET_VOLUME_QOS, volumes::set_qos)
        .on(&paths::DELETE_VOLUME, volumes::delete)
        .on(&paths::CREATE_SNAPSHOT, snapshots::create)
        .on(&paths::CREATE_SNAPSHOTS, snapshots::create_together)
        .on(&paths::CLONE_SNAPSHOT, snapshots::clone)
        .on(&paths::ROLLBACK_VOLUME, snapshots::rollback)
        .on(&paths::GET_VOLUME_USAGE, snapshots::usage)
        .on(&paths::GET_VOLUME_DIFF, snapshots::diff)
        .on(&paths::LIST_EXPORTS, exports::list)
        .on(&paths::CREATE_EXPORT, exports::create)
        .on(&paths::DELETE_EXPORT, exports::delete)
        .on(&paths::LIST_S3, objects::list)
        .on(&paths::START_S3, objects::start)
        .on(&paths::STOP_S3, objects::stop)
        .on(&paths::LIST_BUCKETS, objects::buckets)
        .on(&paths::GET_BUCKET, objects::bucket)
        .on(&paths::CREATE_BUCKET, objects::create_bucket)
        .on(&paths::CHANGE_BUCKET, objects::change_bucket)
        .on(&paths::DELETE_BUCKET, objects::delete_bucket)
        .on(&paths::LIST_OBJECTS, objects::objects)
        .on(&paths::LIST_KEYS, objects::keys)
        .on(&paths::CREATE_KEY, objects::create_key)
        .on(&paths::DELETE_KEY, objects::delete_key)
        .on(&paths::LIST_USERS, users::users)
        .on(&paths::GET_USER, users::user)
        .on(&paths::CREATE_USER, users::create_user)
        .on(&paths::CHANGE_USER, users::change_user)
        .on(&paths::DELETE_USER, users::delete_user)
        .on(&paths::LIST_GROUPS, users::groups)
        .on(&paths::GET_GROUP, users::group)
        .on(&paths::CREATE_GROUP, users::create_group)
        .on(&paths::CHANGE_GROUP, users::change_group)
        .on(&paths::DELETE_GROUP, users::delete_group)
        .on(&paths::LIST_POLICIES, users::policies)
        .on(&paths::GET_POLICY, users::policy)
        .on(&paths::CREATE_POLICY, users::create_policy)
        .on(&paths::CHANGE_POLICY, users::change_policy)
        .on(&paths::DELETE_POLICY, users::delete_policy)
        .on(&paths::LIST_WEBHOOKS, webhooks::webhooks)
        .on(&paths::GET_WEBHOOK, webhooks::webhook)
        .on(&paths::CREATE_WEBHOOK, webhooks::create_webhook)
        .on(&paths::CHANGE_WEBHOOK, webhooks::change_webhook)
        .on(&paths::DELETE_WEBHOOK, webhooks::delete_webhook)
        .on(&paths::LIST_PROVIDERS, roles::providers)
        .on(&paths::GET_PROVIDER, roles::provider)
        .on(&paths::CREATE_PROVIDER, roles::create_provider)
        .on(&paths::CHANGE_PROVIDER, roles::change_provider)
        .on(&paths::DELETE_PROVIDER, roles::delete_provider)
        .on(&paths::LIST_ROLES, roles::roles)
        .on(&paths::GET_ROLE, roles::role)
        .on(&paths::CREATE_ROLE, roles::create_role)
        .on(&paths::CHANGE_ROLE, roles::change_role)
        .on(&paths::DELETE_ROLE, roles::delete_role)
        .on(&paths::LIST_MACHINES, host::machines)
        .on(&paths::OPEN_CONSOLE, host::open_console)
        .on(&paths::SEND_INPUT, host::console_input)
        .on(&paths::LIST_CLUSTERS, host::clusters)
        .on(&paths::GET_CLUSTER, host::cluster)
        .on(&paths::LIST_CLUSTER_USERS, gateways::users)
        .on(&paths::GET_CLUSTER_USER, gateways::user)
        .on(&paths::CREATE_CLUSTER_USER, gateways::create_user)
        .on(&paths::DELETE_CLUSTER_USER, gateways::delete_user)
        .on(&paths::LIST_CLUSTER_KEYS, gateways::keys)
        .on(&paths::CREATE_CLUSTER_KEY, gateways::create_key)
        .on(&paths::DELETE_CLUSTER_KEY, gateways::delete_key)
        .on(&paths::LIST_RUNS, host::runs)
        .on(&paths::GET_IDENTITY, access::identity)
        .on(&paths::CREATE_SESSION, access::create_session)
        .on(&paths::DELETE_SESSION, access::delete_session)
        .on(&paths::LIST_TOKENS, access::tokens)
        .on(&paths::CREATE_TOKEN, access::create_token)
        .on(&paths::DELETE_TOKEN, access::delete_token)
        .on(&paths::LIST_AUDIT, access::audit)
        .0
        .route(paths::OPENAPI, require_role(get(daemon::openapi), Role::Viewer))
        .route(host::CONSOLE_OUTPUT, require_role(get(host::console_output), Role::Operator))
        .route(host::REPORT, require_role(get(host::report), Role::Viewer))
        .route(paths::LIVE, require_role(get(live::stream), Role::Viewer))
        .route(metrics::METRICS, require_role(get(metrics::render), Role::Viewer))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(middleware::from_fn_with_state(services.clone(), authentication::authenticate))
        .layer(middleware::from_fn(log))
        .with_state(services)
}

/// Returns the routes of the console's files.
fn console_routes() -> Router<Arc<Services>> {
    let file = |uri: Uri, headers: HeaderMap| async move { console::file(uri.path(), &headers) };
    console::paths().fold(Router::new(), |router, path| router.route(path, get(file)))
}

/// Routes under construction.
struct Routes(Router<Arc<Services>>);

impl Routes {
    /// Adds the handler of an endpoint.
    fn on<Q, B, R, H, T>(self, endpoint: &Endpoint<Q, B, R>, handler: H) -> Self
    where
        H: Handler<T, Arc<Services>>,
        T: 'static,
    {
        let route = on(method_filter(endpoint.method), handler);
        let route = match endpoint.role {
            Some(role) => require_role(route, role),
            None => route,
        };
        Self(self.0.route(endpoint.path, route))
    }
}

/// Lets only clients with a role use a route.
fn require_role(route: MethodRouter<Arc<Services>>, role: Role) -> MethodRouter<Arc<Services>> {
    route.route_layer(middleware::from_fn(move |request, next| authentication::require(role, request, next)))
}

fn method_filter(method: paths::Method) -> MethodFilter {
    match method {
        paths::Method::Get => MethodFilter::GET,
        paths::Method::Post => MethodFilter::POST,
        paths::Method::Put => MethodFilter::PUT,
        paths::Method::Patch => MethodFilter::PATCH,
        paths::Method::Delete => MethodFilter::DELETE,
    }
}

/// Logs requests: GET requests at level DEBUG, all others at INFO.
async fn log(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let started = std::time::Instant::now();
    let response = next.run(request).await;
    let (status, millis) = (response.status().as_u16(), started.elapsed().as_millis());
    if method == Method::GET {
        tracing::debug!(%method, path, status, millis, "request");
    } else {
        tracing::info!(%method, path, status, millis, "request");
    }
    response
}
