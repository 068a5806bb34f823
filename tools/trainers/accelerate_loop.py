"""A loop with Accelerate and a bar of tqdm, in the form of the examples of Accelerate and Diffusers."""

import torch
import truth
from accelerate import Accelerator
from accelerate.logging import get_logger
from torch.utils.data import DataLoader, TensorDataset
from tqdm.auto import tqdm
import logging

torch.set_num_threads(1)
torch.manual_seed(1)
logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", level=logging.INFO)
logger = get_logger(__name__)

EPOCHS = 3
accelerator = Accelerator(cpu=True)
inputs = torch.randn(160, 8)
data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=60)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=8), scheduler)
total = EPOCHS * len(loader)

logger.info("***** Running training *****")
logger.info(f"  Num examples = {len(data)}")
logger.info(f"  Total optimization steps = {total}")
bar = tqdm(range(total), desc="Steps", disable=not accelerator.is_local_main_process)
done = 0
for epoch in range(EPOCHS):
    for batch, wanted in loader:
        loss = torch.nn.functional.mse_loss(model(batch), wanted)
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        bar.update(1)
        done += 1
        bar.set_postfix(loss=loss.detach().item(), lr=scheduler.get_last_lr()[0])
    for batch, wanted in tqdm(loader, desc="Evaluating"):
        model(batch)
    logger.info(f"epoch {epoch}: eval_loss: {loss.item() + 1}")
bar.close()
accelerator.end_training()
truth.write(step=done, totalSteps=total, loss=loss.item())
