//! The contents of volumes at the opening after a cut or failure.

use engine::Pool;
use reactor::Buffer;

/// Reads the last `bytes` bytes of a volume or snapshot, the part that the model covers.
pub(super) async fn read_last(pool: &Pool, name: &str, bytes: u64) -> Result<Vec<u8>, String> {
    let volume = pool.open_volume(name).await.map_err(|error| format!("open {name}: {error:?}"))?.attach();
    let buffer = Buffer::new(usize::try_from(bytes).unwrap_or(0));
    volume
        .read(volume.size() - bytes, &buffer.span())
        .await
        .map_err(|error| format!("read {name}: {error:?}"))?;
    Ok(buffer.as_slice().to_vec())
}
