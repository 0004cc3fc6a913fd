//! Wide pools: many columns and drives, of different sizes and sectors.

use engine::RepairState;
use format::DriveState;

use crate::repair_tests::{compare, fill, machine, state, wait_for_repair, with_pool};
use crate::run::{Setup, check_findings};

/// Of 24 drives with 16+4, four are lost at once and rebuilt onto the other twenty. Then four more
/// can be lost.
#[test]
fn a_pool_of_24_unequal_drives_tolerates_four_losses() {
    let zone = 64 << 10;
    let setup = Setup {
        zone_bytes: zone,
        drives: (0..24).map(|drive| (4 << 20) + (300 + 25 * drive) * zone).collect(),
        sectors: vec![512, 4096, 4096],
        volatile: (0..24).map(|drive| drive % 3 > 0).collect(),
        shards: 2,
        ..Setup::small("16+4", 24)
    };
    let machine = machine(&setup, 1);
    with_pool(&machine, async |pool| {
        fill(pool, "v", 6000, 9).await;
        let lost = [0, 7, 15, 23];
        for drive in lost {
            pool.fail_drive(drive).await.unwrap();
        }
        assert!(pool.fail_drive(1).await.is_err(), "the scheme does not tolerate this loss");
        compare(pool, "v", 9).await;
        let status = wait_for_repair(pool).await;
        assert_eq!(status.repair.state, RepairState::Complete, "{:?} {:?}", status.repair, status.space);
        for drive in lost {
            assert_eq!(state(&status, drive.into()), DriveState::Removed);
        }
        pool.start_scrub().await.unwrap();
        pool.scrub_settled().await.unwrap();
        let scrub = pool.status().await.unwrap().scrub;
        assert_eq!((scrub.last.damaged, scrub.last.lost, scrub.unhealed), (0, 0, 0));
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
    with_pool(&machine, async |pool| {
        for drive in [1, 2, 3, 4] {
            pool.fail_drive(drive).await.unwrap();
        }
        compare(pool, "v", 9).await;
        // No drives are left for a rebuild.
        assert_eq!(wait_for_repair(pool).await.repair.state, RepairState::NeedsDrive);
    });
    with_pool(&machine, async |pool| compare(pool, "v", 9).await);
    check_findings(&machine.check().unwrap(), &[]).unwrap();
}
