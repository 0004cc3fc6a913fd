//! The properties of an image.

/// An image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// Name within its pool.
    pub name: String,
    /// Identity: no other image of the pool gets it.
    pub id: String,
    /// Size in bytes.
    pub size: u64,
    /// Time of its creation in seconds since 1970.
    pub created: u64,
    /// Snapshot that it was cloned from, as `image@snapshot`.
    pub parent: Option<String>,
    /// Snapshots, oldest first.
    pub snapshots: Vec<ImageSnapshot>,
}

/// A snapshot of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSnapshot {
    /// Name within the image.
    pub name: String,
    /// Number within the pool.
    pub id: u64,
    /// Size of the image at that time in bytes.
    pub size: u64,
}
