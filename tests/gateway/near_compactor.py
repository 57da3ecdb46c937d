"""A compactor in the process of a test: every order and answer crosses the border as bytes, and no process is started."""

from penstock.gateway.compacting import Compactor
from penstock.gateway.compactor import CompactorService, read_compactor_answer
from penstock.gateway.orders import HEADER_BYTES, write_frame
from penstock.settings import GatewaySettings


class NearCompactor(Compactor):
    def __init__(self, most_bytes=100_000_000):
        super().__init__(GatewaySettings())
        self._service = CompactorService(most_bytes)
        self.carried_out = []

    @property
    def pid(self):
        return 0  # never to be started

    async def _carry_out(self, order, size):
        self.carried_out.append(type(order).__name__)
        frame = self._service.answer(write_frame(1, order)[HEADER_BYTES:])
        return read_compactor_answer(frame[HEADER_BYTES:])[1]
