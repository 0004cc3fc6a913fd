//! Which reactors carry out what comes by the queues of an export.
//!
//! Those that the volume's blocks are on, unless others were asked for: what comes up there has nowhere to go. All of them, the first in turn, for
//! a volume that is on all.

use engine::Volume;
use reactor::Remote;

use super::table::Manner;
use crate::error::{Error, ErrorKind, Result};
use crate::reactors::Reactors;

/// The reactors that the queues are dealt out to, in turn.
///
/// # Errors
/// `Invalid` when there is none of a number that was asked for.
pub(super) fn reactors_of(manner: &Manner, volume: &Volume, reactors: &Reactors) -> Result<Vec<Remote>> {
    let chosen = chosen_reactors(manner, reactors)?;
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let own = volume.reactors();
    Ok(if own.len() < reactors.all().len() { own } else { reactors.next_first() })
}

/// The reactors that were asked for.
///
/// # Errors
/// As [`reactors_of`].
pub(super) fn chosen_reactors(manner: &Manner, reactors: &Reactors) -> Result<Vec<Remote>> {
    let all = reactors.all();
    let chosen = manner.reactors.iter().map(|index| {
        all.get(*index as usize).cloned().ok_or_else(|| {
            let message = format!("there is no reactor {index}: the daemon runs {}", all.len());
            Error::new(ErrorKind::Invalid, message)
                .hint("they are numbered from 0; --threads and --cores of the daemon say how many there are")
        })
    });
    chosen.collect()
}

/// Refuses a number of queues that nothing can have.
///
/// # Errors
/// `Invalid`.
pub(super) fn check_queues(manner: &Manner, most: u16) -> Result<()> {
    match manner.queues {
        Some(queues) if !(1..=most).contains(&queues) => {
            Err(Error::new(ErrorKind::Invalid, format!("an export has 1 to {most} queues, not {queues}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::Arc;
    use std::time::Duration;

    use engine::{CreateOptions, DriveSource, NewVolume, OpenOptions, Tuning};
    use reactor::{Backend, Drive, Memory};

    use super::*;
    use crate::reactors::Settings;
    use api::types::Protocol;

    struct Source(Arc<Memory>);

    impl DriveSource for Source {
        fn open(&self) -> Rc<dyn Drive> {
            self.0.open()
        }

        fn path(&self) -> String {
            "memory".into()
        }
    }

    /// A pool of three shards on three reactors.
    async fn pool(reactors: Vec<Remote>) -> engine::Result<engine::Pool> {
        let drives: Vec<Arc<dyn DriveSource>> = (0..3)
            .map(|_| Arc::new(Source(Memory::new(32 << 20).unwrap())) as Arc<dyn DriveSource>)
            .collect();
        let options = CreateOptions {
            name: "fast".into(),
            scheme: "2+1".parse().unwrap(),
            shards: 3,
            zone_bytes: Some(128 << 10),
            now: 0,
            entropy: [7; 32],
        };
        engine::create(&drives, &options).await?;
        let options = OpenOptions {
            tuning: Tuning::default(),
            reactors,
            nonce: 5,
            now: Arc::new(|| 1_700_000_000),
            memory: None,
            accept_stale: false,
        };
        Ok(engine::open(&drives, &options).await?.0)
    }

    #[test]
    fn queues_are_where_the_volume_is_unless_they_are_sent_elsewhere() {
        let settings = Settings { cores: vec![None; 3], poll: Duration::ZERO, backend: Backend::Auto };
        let reactors = Arc::new(Reactors::start(&settings).unwrap());
        let (all, first) = (reactors.all().to_vec(), reactors.next());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let pool = first.call(move || pool(all)).await.unwrap().unwrap();
            let manner = |reactors: &[u32]| Manner {
                protocol: Protocol::VhostUser,
                read_only: false,
                queues: None,
                reactors: reactors.to_vec(),
            };
            let served = |volume: &Volume, chosen: &[u32]| -> Vec<usize> {
                let found = reactors_of(&manner(chosen), volume, &reactors).unwrap();
                let number =
                    |one: &Remote| reactors.all().iter().position(|other| other.is_same(one)).unwrap();
                found.iter().map(number).collect()
            };
            for (name, shards, own) in
                [("a", Some(1), vec![0]), ("b", Some(2), vec![1, 2]), ("c", None, vec![])]
            {
                let wanted = NewVolume { size: 8 << 20, sector: 4096, thick: false, shards, now: 0 };
                pool.create_volume_as(name, wanted).await.unwrap();
                let volume = pool.open_volume(name).await.unwrap();
                let mut found = served(&volume, &[]);
                if own.is_empty() {
                    // One after the other begins, and all are there.
                    assert_ne!(served(&volume, &[]), found);
                    found.sort_unstable();
                    assert_eq!(found, [0, 1, 2]);
                } else {
                    assert_eq!(found, own, "{name}");
                }
                assert_eq!(served(&volume, &[2, 0]), [2, 0]);
            }
            pool.close().await.unwrap();
        });
        reactors.stop();
    }
}
