//! Fuzz target: an NBD server that answers anything.

use ::fuzz::within;

use super::tests::{client, run};

::fuzz::target!(
    /// A client uses bounded memory with any reply; a read that succeeds has filled every byte.
    nbd_client,
    |bytes| {
        let [choice, answers @ ..] = bytes else { return };
        match choice % 4 {
            0 => {
                let _ = within(4 << 20, || run(client(answers).negotiate("disk")));
            }
            1 => {
                let _ = within(4 << 20, || run(client(answers).extents(4096)));
            }
            2 => {
                let _ = within(2 << 20, || run(client(answers).write(0, &[1; 512])));
            }
            _ => {
                let read = |filled: u8| {
                    let mut into = vec![filled; 64];
                    let read = run(client(answers).read(4096, &mut into));
                    read.is_ok().then_some(into)
                };
                let most = 2 << 20;
                assert_eq!(within(most, || read(0)), within(most, || read(0xFF)));
            }
        }
    }
);
