"""diffusers: a small UNet of random weights removes noise from images, in a pipeline's loop."""

import torch
from diffusers import DDIMScheduler, DDPMPipeline, UNet2DModel


def main() -> None:
    unet = UNet2DModel(
        sample_size=16,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
        attention_head_dim=8,
    )
    pipeline = DDPMPipeline(unet, DDIMScheduler())
    pipeline.to("cuda" if torch.cuda.is_available() else "cpu")
    pipeline.set_progress_bar_config(disable=True)
    for _ in range(2):
        pipeline(batch_size=2, num_inference_steps=20, output_type="np")


if __name__ == "__main__":
    main()
