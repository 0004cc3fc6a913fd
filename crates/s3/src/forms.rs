//! PostObject: the right of a form to its key.
//!
//! The protocol library verifies the signature of the form and its policy document. Signatures of
//! version 2 are accepted here only, because a policy document has an end.

use s3s::dto::PostObjectInput;
use s3s::{S3Request, S3Result, s3_error};

use crate::access::{AccessRequest, scope};
use crate::acl::AclRight;
use crate::gateway::Gateway;

impl Gateway {
    /// Checks the right of a form to its key, a field that the first check of access has not seen.
    ///
    /// # Errors
    /// `AccessDenied`, `AuthorizationHeaderMalformed`.
    pub(crate) async fn check_form(&self, request: &S3Request<PostObjectInput>) -> S3Result<()> {
        if let Some(region) = &request.region
            && region.as_str() != &*self.region
        {
            return Err(s3_error!(AuthorizationHeaderMalformed, "the region '{}' is wrong", region.as_str()));
        }
        let scope = scope(&request.extensions);
        let object = Some((request.input.key.as_str(), None));
        let access = AccessRequest { action: "s3:PutObject", right: Some(AclRight::Write), object };
        self.authorize(&scope.caller, scope.bucket()?, access).await
    }
}
