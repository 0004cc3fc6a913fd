//! Listings of multipart uploads.

use object::UploadInfo;
use s3s::dto;
use s3s::{S3Request, S3Response, S3Result};

use crate::access::scope;
use crate::acl;
use crate::attributes;
use crate::gateway::{Gateway, timestamp};
use crate::listings::{encoded, encodes, groups, page_size};

impl Gateway {
    pub(crate) async fn list_uploads(
        &self,
        request: S3Request<dto::ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<dto::ListMultipartUploadsOutput>> {
        let settings = scope(&request.extensions).bucket()?.clone();
        let input = request.input;
        let encodes = encodes(input.encoding_type.as_ref())?;
        let bucket = input.bucket.clone();
        let all = self.read(move |store| store.uploads(&bucket)).await?;
        let prefix = input.prefix.clone().unwrap_or_default();
        let delimiter = input.delimiter.clone().filter(|delimiter| !delimiter.is_empty());
        let marker = (input.key_marker.clone().unwrap_or_default(), input.upload_id_marker.clone());
        let max = page_size(input.max_uploads)?;
        let is_after = |upload: &UploadInfo| match &marker.1 {
            Some(id) => (&upload.key, &upload.id) > (&marker.0, id),
            None => marker.0.is_empty() || upload.key > marker.0,
        };
        let (mut page, mut prefixes): (Vec<UploadInfo>, Vec<String>) = (Vec::new(), Vec::new());
        let mut last: Option<(String, Option<String>)> = None;
        let mut is_truncated = false;
        for upload in all.into_iter().filter(|upload| upload.key.starts_with(&prefix) && is_after(upload)) {
            let rest = upload.key.get(prefix.len()..).unwrap_or_default();
            let group = delimiter.as_deref().and_then(|delimiter| {
                let end = prefix.len() + rest.find(delimiter)? + delimiter.len();
                upload.key.get(..end).map(str::to_owned)
            });
            if group.as_ref().is_some_and(|group| prefixes.last() == Some(group) || *group <= marker.0) {
                continue;
            }
            if page.len() + prefixes.len() >= usize::try_from(max).unwrap_or(0) {
                is_truncated = max > 0;
                break;
            }
            match group {
                Some(group) => {
                    last = Some((group.clone(), None));
                    prefixes.push(group);
                }
                None => {
                    last = Some((upload.key.clone(), Some(upload.id.clone())));
                    page.push(upload);
                }
            }
        }
        let (next_key, next_upload) = last.filter(|_| is_truncated).unzip();
        let describe = |upload: UploadInfo| {
            let owner = attributes::access_list(&upload.attributes, settings.owner()).owner;
            dto::MultipartUpload {
                key: Some(encoded(upload.key, encodes)),
                upload_id: Some(upload.id),
                initiated: Some(timestamp(upload.created_ms)),
                initiator: Some(dto::Initiator {
                    display_name: Some(owner.clone()),
                    id: Some(owner.clone()),
                }),
                owner: Some(acl::owner(&owner)),
                storage_class: Some(dto::StorageClass::from_static(dto::StorageClass::STANDARD)),
                ..Default::default()
            }
        };
        Ok(S3Response::new(dto::ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            prefix: Some(encoded(prefix.clone(), encodes)),
            delimiter,
            key_marker: Some(input.key_marker.unwrap_or_default()),
            upload_id_marker: Some(input.upload_id_marker.unwrap_or_default()),
            max_uploads: Some(max),
            is_truncated: Some(is_truncated),
            next_key_marker: next_key.map(|key| encoded(key, encodes)),
            next_upload_id_marker: next_upload.flatten(),
            uploads: Some(page.into_iter().map(describe).collect()),
            common_prefixes: Some(groups(prefixes, encodes)),
            encoding_type: input.encoding_type,
            ..Default::default()
        }))
    }
}
