//! Invalid catalogue records, which fail an open.

use format::VolumeSpread;

use super::super::tests::{create_options, drives, open_options, run};
use super::super::{create, open};
use super::*;

#[test]
fn a_volume_on_nonexistent_shards_is_refused() {
    run(async || {
        let drives = drives(5, 32 << 20);
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("v", 1 << 20, 4096, 0).await.unwrap();
        let corrupt = |catalogue: Rc<Catalogue>| async move {
            let spread = VolumeSpread { first: 1, shards: 3 };
            let record = VolumeRecord { spread, ..catalogue.find("v").unwrap() };
            catalogue.store(&[&record], None).await.unwrap();
        };
        pool.catalogue().call(corrupt).await.unwrap();
        pool.close().await.unwrap();
        let error = open(&drives, &open_options()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("catalogue record 1"), "{error}");
    });
}
