//! Calls to objects of reactors from any thread.

use std::future::Future;
use std::rc::Rc;

use crate::call::ReactorGone;
use crate::remote::Handle;

/// Runs `work` with an object of a reactor, for a caller on any thread. Unlike the future of
/// [`Handle::call`], this future can move between threads.
///
/// # Errors
/// When the reactor has shut down or the object is not registered.
pub async fn call_object<T, R, F>(
    handle: &Handle<T>,
    work: impl FnOnce(Rc<T>) -> F + Send + 'static,
) -> Result<R, ReactorGone>
where
    T: 'static,
    F: Future<Output = R> + 'static,
    R: Send + 'static,
{
    let local = handle.clone();
    let work = move || async move {
        match local.local() {
            Some(object) => Some(work(object).await),
            None => None,
        }
    };
    handle.remote().call(work).await?.ok_or(ReactorGone)
}
