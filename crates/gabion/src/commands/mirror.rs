//! `gabion bucket mirror`.

use anyhow::Result;
use api::{Error, ErrorKind, Size};

use super::CommandContext;
use super::object::in_session;
use crate::cli::MirrorArgs;
use crate::terminal::print;
use crate::transfer::{MirrorOptions, MirrorResult, MirrorSource, SourceOptions, mirror};

/// Runs `gabion bucket mirror`.
///
/// # Errors
/// When a side cannot be listed, or an object was not copied.
pub(super) async fn run(ctx: &CommandContext, arguments: MirrorArgs) -> Result<()> {
    let MirrorArgs { source, bucket, region, source_ca, dry_run, ignore_etags } = arguments;
    let source = MirrorSource::open(&source, &SourceOptions { region, authority: source_ca })?;
    // The bucket must exist, and its random ETags cannot be compared.
    let has_fast_etags = ctx.client.get_bucket(&bucket).await?.etag == api::types::EtagKind::Fast;
    let ignore_etags = ignore_etags || has_fast_etags;
    let options = MirrorOptions { dry_run, ignore_etags, quiet: ctx.quiet };
    let is_shown = dry_run && !ctx.json && !ctx.quiet;
    let show = |entry: &crate::transfer::MirrorEntry| match is_shown {
        true => print(&format!("copy {} ({})", entry.key, Size(entry.size))),
        false => Ok(()),
    };
    let result =
        in_session(ctx, &bucket, async |session| mirror(&session, source, options, show).await).await?;
    ctx.done(&result, |result| summary(result, &bucket.to_string()))?;
    if result.failed == 0 {
        return Ok(());
    }
    if !ctx.json {
        result.failures.iter().for_each(|failure| eprintln!("gabion: {failure}"));
    }
    let message = format!("{} objects were not copied to {bucket}", result.failed);
    Err(Error::new(ErrorKind::Io, message).hint("the same command copies the rest").into())
}

fn summary(result: &MirrorResult, bucket: &str) -> String {
    let MirrorResult { dry_run, copied, copied_bytes, unchanged, failed, .. } = result;
    let verb = if *dry_run { "to be copied" } else { "copied" };
    let size = Size(*copied_bytes);
    format!("{bucket}: {copied} objects {verb} ({size}), {unchanged} unchanged, {failed} failed")
}
