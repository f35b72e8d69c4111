"""timm: a small ResNet of random weights, in the loop of timm's train.py."""

import timm
import timm.optim
import timm.scheduler
import timm.utils
import torch


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = timm.create_model("resnet10t", num_classes=10).to(device)
    optimizer = timm.optim.create_optimizer_v2(model, opt="sgd", lr=0.05)
    scheduler = timm.scheduler.CosineLRScheduler(optimizer, t_initial=24)
    average = timm.utils.ModelEmaV3(model)
    loss_of = torch.nn.CrossEntropyLoss()
    for update in range(24):
        images = torch.randn(4, 3, 64, 64, device=device)
        labels = torch.randint(0, 10, (4,), device=device)
        loss = loss_of(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model, step=update)
        scheduler.step_update(update)


if __name__ == "__main__":
    main()
