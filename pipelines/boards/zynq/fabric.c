// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/*
 * What the board's kernel has and QEMU's Zynq has not: a fabric that can be loaded, and the allocator that goes with it.
 *
 * - An fpga_manager. The kernel's own driver for Zynq cannot be used: QEMU's device configuration block (devcfg) knows
 *   neither PCFG_INIT nor PCFG_DONE, which that driver waits for, and throws the bitstream away. This one copies it to a
 *   window of physical memory, where the process that plays the fabric reads it and answers.
 * - The attributes `flags` and `firmware` of the board vendor's kernel, which is how user space loads a bitstream there.
 * - The render node of the zocl driver, as far as contiguous memory goes: allocate, map, physical address, synchronise.
 *   QEMU has no caches, so synchronising checks its arguments and does nothing.
 * - Switching off: a Zynq cannot, the process that plays the fabric ends the emulator.
 */
#include <linux/dma-mapping.h>
#include <linux/fpga/fpga-mgr.h>
#include <linux/io.h>
#include <linux/iopoll.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/platform_device.h>
#include <linux/pm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

/* The window, in pipelines/hardware/fabric.py too. Its addresses lie in the Zynq's region for slaves in the fabric,
 * where the emulated machine has memory that this kernel is told not to use. */
#define WINDOW 0x40000000
#define WINDOW_BYTES 0x200000
#define LENGTH 0x0 /* bytes of the bitstream; written last */
#define ANSWER 0x4 /* 0: working, 1: configured, 2: refused */
#define POWER 0x8  /* 1: switch off */
#define DATA 0x1000
#define CONFIGURED 1
#define ANSWER_US 10000000

#define SYNC_BYTES 4
static const u8 sync_word[SYNC_BYTES] = {0x66, 0x55, 0x99, 0xaa}; /* of a byte-swapped .bin */

static void __iomem *window;
static struct platform_device *fabric;

/* ---------------------------------------------------------------------------------------------- fpga_manager */

static u32 written;

static enum fpga_mgr_states fabric_state(struct fpga_manager *mgr)
{
	return readl(window + ANSWER) == CONFIGURED ? FPGA_MGR_STATE_OPERATING : FPGA_MGR_STATE_UNKNOWN;
}

static int fabric_write_init(struct fpga_manager *mgr, struct fpga_image_info *info, const char *buf, size_t count)
{
	size_t at;

	for (at = 0; at + SYNC_BYTES <= count; at += SYNC_BYTES)
		if (!memcmp(buf + at, sync_word, SYNC_BYTES))
			break;
	if (at + SYNC_BYTES > count) {
		dev_err(&mgr->dev, "no sync word: it must be a byte-swapped .bin file\n");
		return -EINVAL;
	}
	writel(0, window + LENGTH);
	writel(0, window + ANSWER);
	written = 0;
	return 0;
}

static int fabric_write(struct fpga_manager *mgr, const char *buf, size_t count)
{
	if (count > WINDOW_BYTES - DATA - written)
		return -EFBIG;
	memcpy_toio(window + DATA + written, buf, count);
	written += count;
	return 0;
}

static int fabric_write_complete(struct fpga_manager *mgr, struct fpga_image_info *info)
{
	u32 answer;
	int error;

	wmb(); /* the bitstream before its length */
	writel(written, window + LENGTH);
	error = readl_poll_timeout(window + ANSWER, answer, answer, 1000, ANSWER_US);
	if (error)
		return error;
	return answer == CONFIGURED ? 0 : -EIO;
}

static const struct fpga_manager_ops fabric_ops = {
	.initial_header_size = SYNC_BYTES, /* a shorter image is refused; write_init sees all of a longer one */
	.state = fabric_state,
	.write_init = fabric_write_init,
	.write = fabric_write,
	.write_complete = fabric_write_complete,
};

static unsigned int flags;

static ssize_t flags_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%x\n", flags);
}

static ssize_t flags_store(struct device *dev, struct device_attribute *attr, const char *buf, size_t count)
{
	int error = kstrtouint(buf, 16, &flags);

	return error ? error : count;
}
static DEVICE_ATTR_RW(flags);

static ssize_t firmware_store(struct device *dev, struct device_attribute *attr, const char *buf, size_t count)
{
	struct fpga_manager *mgr = to_fpga_manager(dev);
	struct fpga_image_info *info = fpga_image_info_alloc(dev);
	char *name = kstrndup(buf, strcspn(buf, "\n"), GFP_KERNEL);
	int error = -ENOMEM;

	if (!info || !name)
		goto out;
	info->flags = flags;
	info->firmware_name = devm_kstrdup(dev, name, GFP_KERNEL);
	if (info->firmware_name)
		error = fpga_mgr_lock(mgr);
	if (!error) {
		error = fpga_mgr_load(mgr, info);
		fpga_mgr_unlock(mgr);
	}
out:
	kfree(name);
	if (info)
		fpga_image_info_free(info);
	return error ? error : count;
}
static DEVICE_ATTR_WO(firmware);

/* ------------------------------------------------------------------------------------- render node like zocl's */

#define BUFFERS 7
#define OFFSET_SHIFT 28 /* a buffer's mmap offset is its handle (1..7) times 256 MiB */
#define CACHEABLE BIT(24) /* zocl drops all flags but this one and EXECBUF; here the others are errors */
#define KNOWN_FLAGS (CACHEABLE | 0xFFFF) /* and the memory's index */

struct buffer {
	void *cpu;
	dma_addr_t physical;
	size_t bytes;
	u32 flags;
};

struct client {
	struct mutex lock;
	struct buffer buffers[BUFFERS];
};

struct create_bo { u64 bytes; u32 handle; u32 flags; };
struct map_bo { u32 handle; u32 pad; u64 offset; };
struct sync_bo { u32 handle; u32 direction; u64 offset; u64 bytes; };
struct info_bo { u32 handle; u32 flags; u64 bytes; u64 physical; };
#define CREATE_BO _IOWR('d', 0x40, struct create_bo)
#define MAP_BO _IOWR('d', 0x43, struct map_bo)
#define SYNC_BO _IOWR('d', 0x44, struct sync_bo)
#define INFO_BO _IOWR('d', 0x45, struct info_bo)

static struct buffer *find(struct client *client, u32 handle)
{
	if (handle < 1 || handle > BUFFERS || !client->buffers[handle - 1].cpu)
		return NULL;
	return &client->buffers[handle - 1];
}

static int create(struct client *client, struct create_bo *wanted)
{
	int i;

	if (wanted->flags & ~KNOWN_FLAGS || !wanted->bytes || wanted->bytes > 1u << OFFSET_SHIFT)
		return -EINVAL;
	for (i = 0; i < BUFFERS && client->buffers[i].cpu; i++)
		;
	if (i == BUFFERS)
		return -ENOSPC;
	client->buffers[i].bytes = PAGE_ALIGN(wanted->bytes);
	client->buffers[i].flags = wanted->flags;
	client->buffers[i].cpu = dma_alloc_coherent(&fabric->dev, client->buffers[i].bytes,
						    &client->buffers[i].physical, GFP_KERNEL | __GFP_NOWARN);
	if (!client->buffers[i].cpu)
		return -ENOMEM;
	wanted->handle = i + 1;
	return 0;
}

static long node_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct client *client = file->private_data;
	union {
		struct create_bo create;
		struct map_bo map;
		struct sync_bo sync;
		struct info_bo info;
	} u;
	struct buffer *buffer;
	long result = 0;

	if (command != CREATE_BO && command != MAP_BO && command != SYNC_BO && command != INFO_BO)
		return -ENOTTY;
	if (copy_from_user(&u, (void __user *)argument, _IOC_SIZE(command)))
		return -EFAULT;
	mutex_lock(&client->lock);
	if (command == CREATE_BO) {
		result = create(client, &u.create);
	} else {
		buffer = find(client, u.map.handle); /* the first word of all three */
		if (!buffer) {
			result = -ENOENT;
		} else if (command == MAP_BO) {
			u.map.offset = (u64)u.map.handle << OFFSET_SHIFT;
		} else if (command == INFO_BO) {
			u.info.flags = buffer->flags;
			u.info.bytes = buffer->bytes;
			u.info.physical = buffer->physical;
		} else if (u.sync.direction > 1 || u.sync.offset > buffer->bytes ||
			   u.sync.bytes > buffer->bytes - u.sync.offset) {
			result = -EINVAL;
		}
	}
	mutex_unlock(&client->lock);
	if (!result && copy_to_user((void __user *)argument, &u, _IOC_SIZE(command)))
		result = -EFAULT;
	return result;
}

static int node_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct client *client = file->private_data;
	struct buffer *buffer = find(client, vma->vm_pgoff >> (OFFSET_SHIFT - PAGE_SHIFT));
	unsigned long bytes = vma->vm_end - vma->vm_start;

	if (!buffer || vma->vm_pgoff & ((1ul << (OFFSET_SHIFT - PAGE_SHIFT)) - 1) || bytes > buffer->bytes)
		return -EINVAL;
	if (!(buffer->flags & CACHEABLE))
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	return remap_pfn_range(vma, vma->vm_start, buffer->physical >> PAGE_SHIFT, bytes, vma->vm_page_prot);
}

static int node_open(struct inode *inode, struct file *file)
{
	struct client *client = kzalloc(sizeof(*client), GFP_KERNEL);

	if (!client)
		return -ENOMEM;
	mutex_init(&client->lock);
	file->private_data = client;
	return 0;
}

static int node_release(struct inode *inode, struct file *file)
{
	struct client *client = file->private_data;
	int i;

	for (i = 0; i < BUFFERS; i++)
		if (client->buffers[i].cpu)
			dma_free_coherent(&fabric->dev, client->buffers[i].bytes, client->buffers[i].cpu,
					  client->buffers[i].physical);
	kfree(client);
	return 0;
}

static const struct file_operations node_operations = {
	.owner = THIS_MODULE,
	.open = node_open,
	.release = node_release,
	.unlocked_ioctl = node_ioctl,
	.mmap = node_mmap,
};

static struct miscdevice node = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "renderD128",
	.nodename = "dri/renderD128",
	.fops = &node_operations,
};

/* ------------------------------------------------------------------------------------------------------- start */

static void switch_off(void)
{
	writel(1, window + POWER);
}

/* What a board's first boot loader has set: an I/O PLL of 20 times the crystal, from which FCLK0 is divided. */
#define SLCR 0xF8000000
#define SLCR_UNLOCK 0x008
#define SLCR_UNLOCK_KEY 0xDF0D
#define SLCR_IO_PLL_CTRL 0x108
#define IO_PLL_BY_20 0x00014008

static void __init set_io_pll(void)
{
	void __iomem *slcr = ioremap(SLCR, PAGE_SIZE);

	if (!slcr)
		return;
	writel(SLCR_UNLOCK_KEY, slcr + SLCR_UNLOCK);
	writel(IO_PLL_BY_20, slcr + SLCR_IO_PLL_CTRL);
	iounmap(slcr);
}

static int __init fabric_init(void)
{
	struct fpga_manager *mgr;
	int error;

	set_io_pll();
	window = ioremap(WINDOW, WINDOW_BYTES);
	fabric = platform_device_register_simple("tritforge-fabric", -1, NULL, 0);
	if (!window || IS_ERR(fabric))
		return -ENOMEM;
	dma_coerce_mask_and_coherent(&fabric->dev, DMA_BIT_MASK(32));
	pm_power_off = switch_off;
	error = misc_register(&node);
	if (error)
		return error;
	mgr = fpga_mgr_register(&fabric->dev, "fabric of an emulated Zynq", &fabric_ops, NULL);
	if (IS_ERR(mgr))
		return PTR_ERR(mgr);
	error = device_create_file(&mgr->dev, &dev_attr_flags);
	return error ? error : device_create_file(&mgr->dev, &dev_attr_firmware);
}
late_initcall(fabric_init);
