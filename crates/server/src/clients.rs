//! Clients of the control plane: each is served independently, for a limited time, and only a few at a time. When there are
//! too many, the oldest one must leave, so idle clients lock nobody out.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

/// Clients of one kind that are served at a time.
pub const MAX_CLIENTS: usize = 64;
/// How long a client may stay.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// The places of one kind of client, the oldest first.
#[derive(Default)]
pub(crate) struct Places(VecDeque<oneshot::Sender<Infallible>>);

impl Places {
    /// A place for a new client.
    pub(crate) fn take(&mut self) -> Place {
        self.0.retain(|place| !place.is_closed());
        if self.0.len() == MAX_CLIENTS {
            self.0.pop_front();
        }
        let (place, taken) = oneshot::channel();
        self.0.push_back(place);
        Place { taken, limit: Box::pin(sleep(CLIENT_TIMEOUT)) }
    }
}

/// A client's place while it is served.
pub(crate) struct Place {
    taken: oneshot::Receiver<Infallible>,
    limit: Pin<Box<Sleep>>,
}

impl Place {
    /// Waits until the client must leave.
    pub(crate) async fn over(&mut self) {
        std::future::poll_fn(|context| self.poll_over(context)).await;
    }

    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match Pin::new(&mut self.taken).poll(context).is_ready()
            || self.limit.as_mut().poll(context).is_ready()
        {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

/// A listener whose connections have places.
pub(crate) struct Placed {
    pub listener: TcpListener,
    pub places: Places,
}

impl Listener for Placed {
    type Io = Visitor;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visitor, SocketAddr) {
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        (Visitor { stream, place: self.places.take() }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends with its place.
pub(crate) struct Visitor {
    stream: TcpStream,
    place: Place,
}

impl Visitor {
    /// The stream, while it may be used.
    fn stream(&mut self, context: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        match self.place.poll_over(context) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(Pin::new(&mut self.stream)),
        }
    }
}

impl AsyncRead for Visitor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream(context)?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Visitor {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream(context)?.poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream(context)?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::time::{Instant, timeout};

    use super::*;

    /// The clock is tokio's own: it advances when there is nothing else to do.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_stays_no_longer_than_it_may() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut placed = Placed { listener, places: Places::default() };
        let (mut visitor, _) = placed.accept().await;
        let come = Instant::now();
        let read = timeout(10 * CLIENT_TIMEOUT, visitor.read(&mut [0])).await;
        assert_eq!(read.expect("it has to go").unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(come.elapsed().as_secs(), CLIENT_TIMEOUT.as_secs());
        drop(client);

        // Clients of the control socket are asked to leave.
        let taken = Instant::now();
        let mut places = Places::default();
        let mut place = places.take();
        timeout(10 * CLIENT_TIMEOUT, place.over()).await.expect("it has to go");
        assert_eq!(taken.elapsed().as_secs(), CLIENT_TIMEOUT.as_secs());
    }
}
