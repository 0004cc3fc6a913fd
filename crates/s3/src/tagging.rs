//! Operations on the tags of objects.

use object::{Change, ObjectInfo, ObjectRef, Outcome};
use s3s::dto;
use s3s::{S3Request, S3Response, S3Result};

use crate::access::scope;
use crate::attributes::{TAGS, version};
use crate::errors::unexpected_outcome;
use crate::gateway::Gateway;
use crate::tags::{TAGS_MAX, check_set, tags_of, to_wire, write};

impl Gateway {
    pub(crate) async fn tags(
        &self,
        request: S3Request<dto::GetObjectTaggingInput>,
    ) -> S3Result<S3Response<dto::GetObjectTaggingOutput>> {
        let versioning = scope(&request.extensions).bucket()?.info.versioning;
        let input = request.input;
        let object = ObjectRef { bucket: input.bucket, key: input.key, version: input.version_id };
        let info = self.read(move |store| store.object(&object)).await?;
        let tag_set = to_wire(tags_of(&info.attributes));
        Ok(S3Response::new(dto::GetObjectTaggingOutput { tag_set, version_id: version(&info, versioning) }))
    }

    pub(crate) async fn set_tags(
        &self,
        request: S3Request<dto::PutObjectTaggingInput>,
    ) -> S3Result<S3Response<dto::PutObjectTaggingOutput>> {
        let versioning = scope(&request.extensions).bucket()?.info.versioning;
        let input = request.input;
        let tags = check_set(input.tagging.tag_set, TAGS_MAX)?;
        let value = (!tags.is_empty()).then(|| write(&tags));
        let object = ObjectRef { bucket: input.bucket, key: input.key, version: input.version_id };
        let info = self.set_tag_attribute(object, value).await?;
        Ok(S3Response::new(dto::PutObjectTaggingOutput { version_id: version(&info, versioning) }))
    }

    pub(crate) async fn delete_tags(
        &self,
        request: S3Request<dto::DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<dto::DeleteObjectTaggingOutput>> {
        let versioning = scope(&request.extensions).bucket()?.info.versioning;
        let input = request.input;
        let object = ObjectRef { bucket: input.bucket, key: input.key, version: input.version_id };
        let info = self.set_tag_attribute(object, None).await?;
        Ok(S3Response::new(dto::DeleteObjectTaggingOutput { version_id: version(&info, versioning) }))
    }

    async fn set_tag_attribute(&self, object: ObjectRef, value: Option<String>) -> S3Result<ObjectInfo> {
        let change = Change::SetAttribute { object, name: TAGS.to_owned(), value };
        match self.commit(change).await? {
            Outcome::Object(info) => Ok(info),
            _ => Err(unexpected_outcome()),
        }
    }
}
