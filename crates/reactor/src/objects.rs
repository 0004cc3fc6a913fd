//! The objects of this thread's reactor that other threads can call, by key.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static OBJECTS: RefCell<HashMap<u64, Rc<dyn Any>, BuildHasherDefault<KeyHasher>>> = RefCell::default();
}

/// A hasher for sequential keys: one multiplication spreads them well.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The fractional part of the golden ratio (Knuth, The Art of Computer Programming, 6.4).
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Registers an object on this thread. Returns its key, which is unique in the process.
pub(crate) fn register(object: Rc<dyn Any>) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let key = NEXT.fetch_add(1, Ordering::Relaxed);
    OBJECTS.with_borrow_mut(|objects| objects.insert(key, object));
    key
}

/// Unregisters the object with this key.
pub(crate) fn unregister(key: u64) {
    let gone = OBJECTS.with_borrow_mut(|objects| objects.remove(&key));
    drop(gone);
}

/// Returns the object registered on this thread under `key`.
pub(crate) fn object<T: 'static>(key: u64) -> Option<Rc<T>> {
    let object = OBJECTS.with_borrow(|objects| objects.get(&key).cloned())?;
    object.downcast().ok()
}

/// Unregisters every object of this thread. Called when its reactor shuts down.
pub(crate) fn unregister_all() {
    let gone = OBJECTS.with_borrow_mut(std::mem::take);
    drop(gone);
}
