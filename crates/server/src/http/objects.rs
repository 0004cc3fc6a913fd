//! Handlers of S3: services, buckets and access keys.

use std::sync::Arc;

use api::types::{
    AccessKey, Bucket, ChangeBucket, CreateBucket, CreateKey, ObjectPage, ObjectQuery, S3Service, StartS3,
};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::extract::{JsonBody, PathParameters, QueryParameters};
use crate::blocking::{blocking, complete};
use crate::error::Result;
use crate::services::Services;

pub(super) async fn list(State(services): State<Arc<Services>>) -> Json<Vec<S3Service>> {
    Json(services.objects.list())
}

pub(super) async fn start(
    State(services): State<Arc<Services>>,
    PathParameters(pool): PathParameters<String>,
    JsonBody(request): JsonBody<StartS3>,
) -> Result<(StatusCode, Json<S3Service>)> {
    let started = complete(async move { services.objects.start(&pool, request).await }).await?;
    Ok((StatusCode::CREATED, Json(started)))
}

pub(super) async fn stop(
    State(services): State<Arc<Services>>,
    PathParameters(pool): PathParameters<String>,
) -> Result<StatusCode> {
    complete(async move { services.objects.stop(&pool).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn buckets(
    State(services): State<Arc<Services>>,
    PathParameters(pool): PathParameters<String>,
) -> Result<Json<Vec<Bucket>>> {
    Ok(Json(services.buckets.list(&pool).await?))
}

pub(super) async fn bucket(
    State(services): State<Arc<Services>>,
    PathParameters((pool, bucket)): PathParameters<(String, String)>,
) -> Result<Json<Bucket>> {
    Ok(Json(services.buckets.get(&pool, &bucket).await?))
}

pub(super) async fn objects(
    State(services): State<Arc<Services>>,
    PathParameters((pool, bucket)): PathParameters<(String, String)>,
    QueryParameters(query): QueryParameters<ObjectQuery>,
) -> Result<Json<ObjectPage>> {
    Ok(Json(services.buckets.objects(&pool, &bucket, query).await?))
}

pub(super) async fn create_bucket(
    State(services): State<Arc<Services>>,
    PathParameters(pool): PathParameters<String>,
    JsonBody(request): JsonBody<CreateBucket>,
) -> Result<(StatusCode, Json<Bucket>)> {
    let create = async move { services.buckets.create(&pool, &request.name).await };
    Ok((StatusCode::CREATED, Json(complete(create).await?)))
}

pub(super) async fn change_bucket(
    State(services): State<Arc<Services>>,
    PathParameters((pool, bucket)): PathParameters<(String, String)>,
    JsonBody(request): JsonBody<ChangeBucket>,
) -> Result<Json<Bucket>> {
    let change = async move { services.buckets.change(&pool, &bucket, request).await };
    Ok(Json(complete(change).await?))
}

pub(super) async fn delete_bucket(
    State(services): State<Arc<Services>>,
    PathParameters((pool, bucket)): PathParameters<(String, String)>,
) -> Result<StatusCode> {
    complete(async move { services.buckets.delete(&pool, &bucket).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn keys(State(services): State<Arc<Services>>) -> Json<Vec<AccessKey>> {
    Json(services.objects.keys.list())
}

pub(super) async fn create_key(
    State(services): State<Arc<Services>>,
    JsonBody(request): JsonBody<CreateKey>,
) -> Result<(StatusCode, Json<AccessKey>)> {
    let keys = services.objects.keys.clone();
    let created = blocking(move || keys.create(request.user.as_deref(), request.valid_s)).await??;
    tracing::info!(access_key = created.access_key, "access key created");
    Ok((StatusCode::CREATED, Json(created)))
}

pub(super) async fn delete_key(
    State(services): State<Arc<Services>>,
    PathParameters(key): PathParameters<String>,
) -> Result<StatusCode> {
    let keys = services.objects.keys.clone();
    blocking(move || keys.delete(&key)).await??;
    Ok(StatusCode::NO_CONTENT)
}
